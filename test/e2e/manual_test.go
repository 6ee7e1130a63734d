package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/test/node"
)

func manualScenarios() []scenario {
	return []scenario{
		{"manual-tutorial", "the rehearsal of docs/migrate-guide.md as people type it: from nothing to a migrated volume, back, and without flex2csi", (*T).typeTutorial},
		{"manual-evening", "docs/migrate-guide.md as people type it, with 200 volumes (50 among all scenarios) of two old drivers and 20 pods: to the middle, back to the old drivers, and through to a cluster without flex2csi; each pod finds all its lines", typeEvening},
		{"manual-debugging", "everything that docs/troubleshooting.md has people type, as it stands", (*T).typeDebugging},
	}
}

// guide is the document that people migrate by.
const guide = "docs/migrate-guide.md"

// chapter is the text below a heading of the guide that begins so.
func (t *T) chapter(text, title string) string {
	t.Helper()
	_, begin, ok := strings.Cut(text, "\n## "+title)
	if !ok {
		t.Fatalf("%s has no chapter %s", guide, title)
	}
	chapter, _, _ := strings.Cut(begin, "\n## ")
	return chapter
}

// typeTutorial follows the guide's rehearsal on the node, where flex2csi is already. At
// the end all is as before.
func (t *T) typeTutorial() {
	text, err := os.ReadFile("../../" + guide)
	t.must(err)
	before, after, ok := strings.Cut(t.chapter(string(text), "A rehearsal"), "\nType [chapter 7]")
	commands := blocks(before) + blocks(t.chapter(string(text), "7 ")) + blocks(after)
	if !ok || !strings.Contains(commands, " migrate apply ") || !strings.Contains(commands, "/flex2csi uninstall\n") {
		t.Fatalf("%s does not migrate and uninstall any more", guide)
	}
	t.patience = max(t.patience, 8*time.Minute) // a person is told ten
	t.after = append(t.after, func() {
		t.check(t.install(t.ctx()))
		out, err := t.kubectl("delete", "--ignore-not-found", "--wait", "-f", "../../docs/quickstart/counter.yaml", "-f", "../../docs/quickstart/counter-volume.yaml")
		t.check(withText(err, out))
	})
	out := t.bash(commands)
	for _, want := range []string{"Published", "disk.csi.example.com", `"volumeHandle":"disk-1"`, `"driver":"example.com/disk"`} {
		if !strings.Contains(out, want) {
			t.Errorf("the rehearsal does not show %q:\n%s", want, out)
		}
	}
	if n := strings.Count(out, ", none is missing"); n < 2 {
		t.Errorf("no line is missing: said %d times, want 2:\n%s", n, out)
	}
}

// typeDebugging follows docs/troubleshooting.md for a pod with a volume. Where the guide
// comes to pods that cannot end, the kubelet does nothing any more and the pod's
// processes are gone.
func (t *T) typeDebugging() {
	// doctor misses a CSI driver that the configuration has, as it should.
	t.deploy("manifests/late", late())
	v := t.volume(disk(), "data")
	pod := t.start("web", v.at("/data"))
	t.sh(pod, "echo kept > /data/file && sync")
	setUp, running, ended := t.debuggingGuide(v, pod)

	out := t.bash(setUp + withoutGCE(t, running))
	for _, want := range []string{"(csi-not-registered)", "Published", `"volumeAttachment": "csi-`, "rpc: NodePublishVolume", "globalmount", `TYPE="ext4"`, `{"status":"Success"}`} {
		if !strings.Contains(out, want) {
			t.Errorf("what the guide shows of a running pod lacks %q:\n%s", want, out)
		}
	}
	t.wantSh(pod, "cat /data/file", "kept") // the mount by hand has done no harm

	t.node.Kubelet.Stop()
	killProcesses(t, pod)
	out = t.bash(setUp + ended)
	if n := strings.Count(out, `"status":"Success"`); n != 4 {
		t.Errorf("of the calls by hand %d succeed, want 4:\n%s", n, out)
	}
	t.must(t.node.Kubelet.Start())
	t.delete(pod)
}

// withoutGCE has doctor find something: the GCE driver is there for its own scenario
// only.
func withoutGCE(t *T, commands string) string {
	t.Helper()
	const doctor = "$F doctor --config $C/etc/flex2csi/config.yaml\n"
	if strings.Count(commands, doctor) != 1 {
		t.Fatalf("the guide does not say %s once", doctor)
	}
	return strings.Replace(commands, doctor, strings.TrimSpace(doctor)+" || test $? = 1\n", 1)
}

// deploy has a CSI driver on the node until the scenario ends.
func (t *T) deploy(manifests string, d driver) {
	t.Helper()
	t.must(t.apply(manifests))
	t.after = append(t.after, func() {
		out, err := t.kubectl("delete", "-k", manifests, "--wait")
		t.check(withText(err, out))
	})
	t.wait("registration", func() error {
		node, err := t.client.StorageV1().CSINodes().Get(t.ctx(), node.Name, metav1.GetOptions{})
		if err == nil && !slices.ContainsFunc(node.Spec.Drivers, func(registered storagev1.CSINodeDriver) bool { return registered.Name == d.csi }) {
			err = errors.New("the node has no driver " + d.csi)
		}
		return err
	})
}

// debuggingGuide returns the guide's commands: those that set variables, those for
// a pod that runs, and those for one that has ended.
func (t *T) debuggingGuide(v *volume, pod *corev1.Pod) (setUp, running, ended string) {
	t.Helper()
	const path = "../../docs/troubleshooting.md"
	text, err := os.ReadFile(path)
	t.must(err)
	what, rest, ok := strings.Cut(string(text), "\n### The driver\n")
	before, after, ok2 := strings.Cut(rest, "\n### A pod hangs in Terminating\n")
	if !ok || !ok2 {
		t.Fatalf("%s has other headings", path)
	}
	setUp = blocks(what)
	theirs := "DRIVER=example.com/disk; NS=default; POD=web; PV=pv1\n"
	if !strings.Contains(setUp, theirs) {
		t.Fatalf("%s does not begin with %s", path, theirs)
	}
	ours := fmt.Sprintf("DRIVER=%s; NS=%s; POD=%s; PV=%s\n", v.flex, t.Namespace, pod.Name, v.name)
	return strings.Replace(setUp, theirs, ours, 1), blocks(before), blocks(after)
}

// blocks are the commands in a document that people type, in their order.
func blocks(text string) string {
	var all strings.Builder
	for _, m := range regexp.MustCompile("(?s)\n```sh\n(.*?)```").FindAllStringSubmatch(text, -1) {
		all.WriteString(m[1])
	}
	return all.String()
}

// bash runs commands on the node as if they were typed there; each has to succeed,
// also inside of a pipe.
func (t *T) bash(commands string) string {
	t.Helper()
	return t.bashIn(t.desk(), t.patience, commands)
}

// desk is a directory to type commands in. They find the repository's files, and write
// nothing there.
func (t *T) desk() string {
	t.Helper()
	desk := t.TempDir()
	for _, dir := range []string{"docs", "install"} {
		path, err := filepath.Abs("../../" + dir)
		t.must(err)
		t.must(os.Symlink(path, filepath.Join(desk, dir)))
	}
	return desk
}

// bashIn is bash in a directory.
func (t *T) bashIn(dir string, patience time.Duration, commands string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.ctx(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euxo", "pipefail", "-s")
	cmd.Stdin = strings.NewReader(commands)
	cmd.Dir = dir
	cmd.Env = t.node.Env()
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("one of the commands fails: %v\n%s", err, out)
	}
	return string(out)
}

// killProcesses ends all processes of a pod for good.
func killProcesses(t *T, pod *corev1.Pod) {
	t.Helper()
	uid := string(pod.UID)
	groups, err := filepath.Glob("/proc/[0-9]*/cgroup")
	t.must(err)
	killed := 0
	for _, file := range groups {
		text, err := os.ReadFile(file) // it may be gone by now
		if err != nil || !strings.Contains(strings.ReplaceAll(string(text), "_", "-"), uid) {
			continue
		}
		pid, err := strconv.Atoi(strings.Split(file, "/")[2])
		t.must(err)
		if err := syscall.Kill(pid, syscall.SIGKILL); err == nil {
			killed++
		}
	}
	if killed == 0 {
		t.Fatalf("pod %s has no processes", pod.Name)
	}
}
