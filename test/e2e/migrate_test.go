package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/bridgestatus"
	"github.com/flex2csi/flex2csi/internal/distribution"
	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/test/node"
)

// tells lets the daemons say which pods have their volumes from them.
func tells() string {
	if !minor().Has(distribution.AdmissionPolicies()) {
		return "manifests/migrate-before-1.30"
	}
	return "../../install/migrate"
}

// migrationPatience is how long a command of flex2csi migrate may take.
const migrationPatience = 8 * time.Minute

// A migration is a command of flex2csi migrate that has been started.
type migration struct {
	t      *T
	cmd    *exec.Cmd
	stdout strings.Builder
	// said is what it said while it worked.
	said strings.Builder
}

// journal is where the scenario's journal is kept.
func (t *T) journal() string {
	return filepath.Join(t.dir, strings.TrimPrefix(t.Namespace, "e2e-"), "journal")
}

// migrate runs flex2csi migrate as its users do, and returns what came of each
// volume. One at a time: the others wait.
func (t *T) migrate(args ...string) ([]result, error) {
	t.Helper()
	return t.migrateAt(nil, args...)
}

// migrateAt is migrate, and has something done at each line that it says. On a release that
// plan does not call tested a person has decided to try it.
func (t *T) migrateAt(at func(m *migration, line string), args ...string) ([]result, error) {
	t.Helper()
	if args[0] == "apply" && !tested() {
		args = append(args, "--accept", "node")
	}
	return t.migrateAsIs(at, args...)
}

// migrateAsIs is migrateAt without any decision.
func (t *T) migrateAsIs(at func(m *migration, line string), args ...string) ([]result, error) {
	t.Helper()
	t.migrating.Lock()
	defer t.migrating.Unlock()
	ctx, cancel := context.WithTimeout(t.ctx(), migrationPatience)
	defer cancel()
	m := &migration{t: t}
	args = append([]string{"migrate"}, args...)
	args = append(args, "--journal", t.journal(), "--output", "json")
	if !slices.Contains(args, "--kubeconfig") {
		args = append(args, "--kubeconfig", node.Kubeconfig)
	}
	m.cmd = exec.CommandContext(ctx, os.Getenv("FLEX2CSI_BINARY"), args...)
	m.cmd.Stdout = &m.stdout
	lines := &lineWriter{line: func(line string) {
		fmt.Fprintf(&m.said, "%s %s\n", time.Now().Format("15:04:05.000"), line)
		if at != nil {
			at(m, line)
		}
	}}
	m.cmd.Stderr = lines
	err := m.cmd.Run()
	t.check(m.keep(strings.Join(args, " ")))
	if err != nil {
		err = fmt.Errorf("flex2csi %s: %w: %s%s", strings.Join(args, " "), err, m.said.String(), m.stdout.String())
	}
	results, bad := decodeResults(m.stdout.String())
	return results, errors.Join(err, bad)
}

// keep writes down what the command said.
func (m *migration) keep(command string) error {
	name := filepath.Join(filepath.Dir(m.t.journal()), "migrate.txt")
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "$ flex2csi %s\n%s%s\n", command, m.said.String(), m.stdout.String())
	return errors.Join(err, f.Close())
}

// A result is what came of one volume.
type result struct {
	Name             string          `json:"name"`
	Outcome          migrate.Outcome `json:"outcome"`
	Stage            string          `json:"stage"`
	Why              string          `json:"why"`
	LostSeconds      float64         `json:"lostSeconds"`
	TakenOverSeconds float64         `json:"takenOverSeconds"`
	Requests         int             `json:"requests"`
}

func decodeResults(text string) ([]result, error) {
	var document struct {
		Volumes []result `json:"volumes"`
	}
	if err := json.Unmarshal([]byte(text), &document); err != nil {
		return nil, fmt.Errorf("what flex2csi migrate says in the end: %w: %s", err, text)
	}
	return document.Volumes, nil
}

// A lineWriter calls line with each whole line.
type lineWriter struct {
	line func(string)
	rest string
}

func (w *lineWriter) Write(p []byte) (int, error) {
	w.rest += string(p)
	for {
		line, rest, whole := strings.Cut(w.rest, "\n")
		if !whole {
			return len(p), nil
		}
		w.rest = rest
		w.line(line)
	}
}

// toCSI migrates volumes live, and wants all of them done.
func (t *T) toCSI(args ...string) []result {
	t.Helper()
	t.waitTold()
	results, err := t.migrate(append([]string{"apply", "--yes", "--timeout", "3m"}, args...)...)
	return t.wantDone(results, err)
}

// toFlex takes volumes back, and wants all of them done.
func (t *T) toFlex(args ...string) []result {
	t.Helper()
	results, err := t.migrate(append([]string{"rollback", "--yes", "--timeout", "3m"}, args...)...)
	return t.wantDone(results, err)
}

func (t *T) wantDone(results []result, err error) []result {
	t.Helper()
	t.must(err)
	if len(results) == 0 {
		t.Fatal("no volume was migrated")
	}
	for _, r := range results {
		if r.Outcome != migrate.Done {
			t.Fatalf("volume %s: %s at %s: %s", r.Name, r.Outcome, r.Stage, r.Why)
		}
		t.note("Lost %.2f s, taken over after %.1f s, %d requests", r.LostSeconds, r.TakenOverSeconds, r.Requests)
	}
	return results
}

// waitTold waits until the daemon has told which pods have their volumes from it.
// What it told before may have the volume already, and not the pod.
func (t *T) waitTold() {
	t.Helper()
	t.wait("the daemon to tell of the scenario's pods", func() error {
		object, err := t.client.CoreV1().ConfigMaps(bridgestatus.Namespace).Get(t.ctx(), node.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		document, err := bridgestatus.DecodeNodeVolumes(object.Data[bridgestatus.Key])
		if err != nil {
			return err
		}
		for _, v := range t.bridged() {
			if err := v.isTold(document); err != nil {
				return err
			}
		}
		return nil
	})
}

// isTold is an error unless a document has the volume for each pod to which the
// bridge has mounted it, and has no doubts.
func (v *volume) isTold(document *bridgestatus.NodeVolumes) error {
	const pods = "/var/lib/kubelet/pods/"
	dirs, err := filepath.Glob(pods + "*/volumes/" + strings.ReplaceAll(v.driver.flex, "/", "~") + "/" + v.name)
	if err != nil {
		return err
	}
	told := document.Find(v.csi, v.handle)
	for _, dir := range dirs {
		uid, _, _ := strings.Cut(strings.TrimPrefix(dir, pods), "/")
		if told == nil || !told.Has(uid) || told.Uncertain {
			return fmt.Errorf("volume %s is mounted for pod %s, and of it is told %+v", v.handle, uid, told)
		}
	}
	return nil
}

// persistentVolume is the object as it is now.
func (t *T) persistentVolume(v *volume) *corev1.PersistentVolume {
	t.Helper()
	pv, err := t.client.CoreV1().PersistentVolumes().Get(t.ctx(), v.name, metav1.GetOptions{})
	t.must(err)
	return pv
}

// wantCSI checks the replacement, and that the claim is the one that it was.
func (t *T) wantCSI(v *volume, was *corev1.PersistentVolume) {
	t.Helper()
	is := t.persistentVolume(v)
	switch source := is.Spec.CSI; {
	case source == nil || source.Driver != v.csi || source.VolumeHandle != v.handle:
		t.Fatalf("the source of PersistentVolume %s is %+v", v.name, is.Spec.PersistentVolumeSource)
	case is.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain:
		t.Errorf("the reclaim policy is %s", is.Spec.PersistentVolumeReclaimPolicy)
	}
	t.wantBound(v, is, was)
}

// wantFlex checks that the volume was re-created as it was.
func (t *T) wantFlex(v *volume, was *corev1.PersistentVolume) {
	t.Helper()
	t.wantBound(v, t.wantFlexSpec(v, was), was)
}

// wantFlexSpec checks that the volume is what it was, down to the last field that
// the API server does not set, re-created or not.
func (t *T) wantFlexSpec(v *volume, was *corev1.PersistentVolume) *corev1.PersistentVolume {
	t.Helper()
	is := t.persistentVolume(v)
	if a, b := bare(t, was), bare(t, is); a != b {
		t.Fatalf("PersistentVolume %s was\n%s\nand is\n%s", v.name, a, b)
	}
	return is
}

// bare is an object without what the API server and controllers set.
func bare(t *T, pv *corev1.PersistentVolume) string {
	t.Helper()
	o := pv.DeepCopy()
	o.UID, o.ResourceVersion, o.Generation, o.ManagedFields = "", "", 0, nil
	o.CreationTimestamp = metav1.Time{}
	o.Status = corev1.PersistentVolumeStatus{}
	if o.Spec.ClaimRef != nil {
		o.Spec.ClaimRef.ResourceVersion = ""
	}
	text, err := json.MarshalIndent(o, "", " ")
	t.must(err)
	return string(text)
}

func (t *T) wantBound(v *volume, is, was *corev1.PersistentVolume) {
	t.Helper()
	claim, err := t.client.CoreV1().PersistentVolumeClaims(t.Namespace).Get(t.ctx(), v.name, metav1.GetOptions{})
	t.must(err)
	if claim.Status.Phase != corev1.ClaimBound || claim.UID != was.Spec.ClaimRef.UID || is.Spec.ClaimRef.UID != claim.UID || is.UID == was.UID {
		t.Errorf("claim %s (%s, was %s) is %s", claim.Name, claim.UID, was.Spec.ClaimRef.UID, claim.Status.Phase)
	}
}

// csiDir is the volume's directory of a pod, as the kubelet's CSI plugin has it.
func (v *volume) csiDir(pod *corev1.Pod) string {
	return fmt.Sprintf("/var/lib/kubelet/pods/%s/volumes/kubernetes.io~csi/%s/mount", pod.UID, v.name)
}

// wantMounts checks which of the two mounts a pod has.
func (t *T) wantMounts(v *volume, pod *corev1.Pod, flex, csi bool) {
	t.Helper()
	t.check(v.mountsOf(pod, flex, csi))
}

// mountsOf is an error unless a pod has those of the two mounts that are wanted.
func (v *volume) mountsOf(pod *corev1.Pod, flex, csi bool) error {
	text, err := fileText("/proc/self/mountinfo")
	errs := []error{err}
	for dir, want := range map[string]bool{v.dir(pod): flex, v.csiDir(pod): csi} {
		if got := strings.Contains(text, " "+dir+" "); got != want {
			errs = append(errs, fmt.Errorf("pod %s has %s mounted: %v, want %v", pod.Name, dir, got, want))
		}
	}
	return errors.Join(errs...)
}
