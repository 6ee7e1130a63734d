package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// migrateKills is one that is killed.
func migrateKills() []scenario {
	return []scenario{
		{"migrate-killed", "kill -9 of the command at each stage while a pod writes, and the kubelet restarted while there is no PersistentVolume; on with resume, back with rollback", migrateKilled},
	}
}

// migrateKilled: kill -9 comes when the program has said that a stage is reached,
// or is about to.
func migrateKilled(t *T) {
	v := t.volume(disk(), "data")
	t.follow(v)
	w := t.writer("pod", v)
	was := t.persistentVolume(v)
	for round, said := range []string{"begun", "Retained after", "Accepted after", "Deleting after", "Created after", "Bound after", "Attached after"} {
		t.waitTold()
		for late := 0; !t.killedAt(said, "apply", "--yes", v.name); late++ {
			if late == 5 {
				t.Fatalf("apply was never killed at %q", said)
			}
			t.toFlexOrNot(v)
			t.waitTold()
		}
		w.writes()
		if round%2 == 1 {
			t.toFlexOrNot(v)
		} else {
			results, err := t.migrate("resume", "--timeout", "3m")
			t.must(err)
			switch {
			case len(results) > 0:
				t.wantCSI(v, was)
				t.wantMounts(v, w.pod, true, true)
				if t.killedAt([]string{"Deleting after", "Created after"}[round/2%2], "rollback", "--yes", v.name) {
					results, err = t.migrate("resume", "--timeout", "3m")
					t.wantDone(results, err)
				}
			case round > 0: // in the first one nothing need be written down yet
				t.Fatalf("killed at %q, and there is nothing to resume", said)
			}
		}
		w.writes()
		t.wantFlexSpec(v, was)
	}
	t.inTheWindow(v, w)
	t.wantCSI(v, was)
	// The kubelet knows nothing of the old mount since it was started again, and has
	// it taken away when it asks next with the new one.
	if err := retry(backOff+t.patience, func() error { return v.mountsOf(w.pod, false, true) }); err != nil {
		t.Fatalf("the new mount alone: %v", err)
	}
	w.writes()
	w.note()
	t.delete(w.pod)
	next := w.next("next")
	t.wantMounts(v, next.pod, false, true)
	next.writes()
	t.delete(next.pod)
	t.waitIdle(v)
}

// killedAt runs a command and kills it with -9 when it says something. It is false if the
// command has succeeded before that was read, as it may near its end on a busy machine.
func (t *T) killedAt(said string, args ...string) bool {
	t.Helper()
	var at string
	_, err := t.migrateAt(func(m *migration, line string) {
		if at == "" && strings.Contains(line, said) {
			at = line
			if err := m.cmd.Process.Kill(); !errors.Is(err, os.ErrProcessDone) {
				t.check(err)
			}
		}
	}, args...)
	switch {
	case at == "":
		t.Fatalf("%v did not say %q: %v", args, said, err)
	case err == nil:
		t.note("not killed in time at %q", said)
		return false
	}
	t.note("killed at %q", strings.Join(strings.Fields(at)[1:], " "))
	return true
}

// toFlexOrNot takes a volume back, of which perhaps nothing was begun.
func (t *T) toFlexOrNot(v *volume) {
	t.Helper()
	results, err := t.migrate("rollback", "--yes", "--timeout", "3m", v.name)
	if t.persistentVolume(v).Spec.FlexVolume != nil && err != nil && strings.Contains(err.Error(), "was not migrated") {
		return
	}
	t.wantDone(results, err)
}

// inTheWindow forbids to create the volume, so that there is none for a while. Meanwhile
// the program is killed, and the kubelet restarted: it knows nothing then of its pod's
// volume.
func (t *T) inTheWindow(v *volume, w *writer) {
	t.Helper()
	t.policy("e2e-no-volume", v.name)
	t.waitTold()
	if !t.killedAt("not now", "apply", "--yes", "--timeout", "1m", v.name) {
		t.Fatalf("apply succeeded, though it may not create the volume")
	}
	if pv, err := t.client.CoreV1().PersistentVolumes().Get(t.ctx(), v.name, metav1.GetOptions{}); err == nil {
		t.Fatalf("there is a PersistentVolume: %+v", pv)
	}
	// What the kubelet's CSI plugin had from the migration before it takes away.
	methods := []string{"NodeUnstageVolume", "ControllerUnpublishVolume"}
	before := t.countAll(v, methods...)
	untouched := func() {
		t.Helper()
		if now := t.countAll(v, methods...); now != before {
			t.Fatalf("the kubelet was restarted while there was no PersistentVolume: calls were %s, and are %s", before, now)
		}
	}
	t.must(t.node.Kubelet.Restart())
	t.wait("the unmount to be refused", func() error {
		untouched()
		return v.wasRefused()
	})
	// It asks again, and has what it had over CSI unpublished.
	time.Sleep(15 * time.Second)
	t.waitKnown(w.pod)
	w.writes()
	untouched()
	t.noPolicy("e2e-no-volume")
	// It may have been about to put the old volume back, and says so then.
	if _, err := t.migrate("resume", "--timeout", "4m"); err != nil && !strings.Contains(err.Error(), "put back") {
		t.Fatal(err)
	}
	w.writes()
	if t.persistentVolume(v).Spec.CSI == nil {
		t.toCSI(v.name)
	}
}

// wasRefused is an error unless the last that was asked of the bridge for the volume
// was to unmount it under a pod that lives. A kubelet that was started while there
// is no PersistentVolume asks for that within seconds, and again and again.
func (v *volume) wasRefused() error {
	r, err := v.record()
	switch {
	case err != nil:
		return err
	case r == nil:
		return errors.New("the bridge has no record of the volume any more")
	case !strings.Contains(r.LastError, "is still running with this mount"):
		return fmt.Errorf("the last error in the bridge's record is %q", r.LastError)
	}
	return nil
}

func (t *T) countAll(v *volume, methods ...string) string {
	t.Helper()
	var all []string
	for _, method := range methods {
		n, err := v.count(method)
		t.must(err)
		all = append(all, fmt.Sprintf("%s %d", method, n))
	}
	return strings.Join(all, ", ")
}

// policy forbids to create a PersistentVolume of a name, except as a dry run.
func (t *T) policy(name, volume string) {
	t.Helper()
	const text = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [persistentvolumes], operations: [CREATE]}]
  validations: [{expression: "request.dryRun || object.metadata.name != '%[2]s'", message: not now}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec: {policyName: %[1]s, validationActions: [Deny]}
`
	file := filepath.Join(t.TempDir(), "policy.yaml")
	t.must(os.WriteFile(file, fmt.Appendf(nil, text, name, volume), 0o600))
	out, err := t.kubectl("apply", "-f", file)
	t.must(withText(err, out))
	t.Cleanup(func() { t.noPolicy(name) })
	time.Sleep(3 * time.Second) // until it holds
}

func (t *T) noPolicy(name string) {
	t.Helper()
	out, err := t.kubectl("delete", "--ignore-not-found", "validatingadmissionpolicybinding,validatingadmissionpolicy", name)
	t.check(withText(err, out))
	time.Sleep(3 * time.Second)
}
