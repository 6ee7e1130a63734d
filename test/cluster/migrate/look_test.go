package migrate_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/flex2csi/flex2csi/internal/bridgestatus"
	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
	"github.com/flex2csi/flex2csi/internal/report"
	"github.com/flex2csi/flex2csi/test/controlplane"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// TestLook: status and finish say what the cluster has, on one control plane.
func TestLook(t *testing.T) {
	w := start(t)
	t.Run("Status", func(t *testing.T) { testStatus(w.with(t)) })
	t.Run("Finish", func(t *testing.T) { testFinish(w.with(t)) })
}

// migrateCommand runs flex2csi migrate, and wants an exit status.
func (w *world) migrateCommand(status int, args ...string) (out, errs string) {
	w.t.Helper()
	command := exec.CommandContext(w.t.Context(), filepath.Join(os.Getenv("FLEX_PROGRAMS"), "flex2csi"), append([]string{"migrate"}, args...)...)
	command.Dir = w.t.TempDir()
	command.Env = append(os.Environ(), "KUBECONFIG="+w.Kubeconfig(controlplane.Admin))
	var o, e strings.Builder
	command.Stdout, command.Stderr = &o, &e
	if err := command.Run(); command.ProcessState.ExitCode() != status {
		w.t.Fatalf("%q: %v\n%s\n%s", args, err, o.String(), e.String())
	}
	return o.String(), e.String()
}

// record writes one into the journal in the cluster.
func (w *world) record(volume string, direction journal.Direction, stage journal.Stage, change ...func(*journal.Record)) {
	w.t.Helper()
	r := &journal.Record{
		Volume: volume, Claim: "default/" + volume, FlexDriver: flexDriver, CSIDriver: csiDriver, VolumeHandle: "vol-" + volume,
		Mode: journal.Live, Direction: direction, Stage: stage, By: "eve@ws", Flex: json.RawMessage(`{}`), CSI: json.RawMessage(`{}`),
		Times: map[journal.Stage]time.Time{stage: time.Now().Add(-time.Hour)},
	}
	for _, c := range change {
		c(r)
	}
	w.check(journal.New(w.cluster(controlplane.Admin), migrate.Namespace, "").Save(w.t.Context(), r))
}

// swapped replaces a disk by hand.
func (w *world) swapped(name string) {
	w.t.Helper()
	claim, err := w.Admin().CoreV1().PersistentVolumeClaims("default").Get(w.t.Context(), name, metav1.GetOptions{})
	w.check(err)
	w.replace(replacement(w.t, w.one(name)), claim.UID)
}

func testStatus(w *world) {
	for _, name := range []string{"st-live", "st-bare", "st-changed", "st-window", "st-halted", "st-left", "st-back"} {
		w.disk(name)
	}
	pod := w.pod("st-live", "node-1", "st-live")
	w.swapped("st-live")
	w.swapped("st-bare")
	old := has("st-live", pod)
	old.Pods[0].TakenOver = true
	old.Pods = append(old.Pods, bridgestatus.NodePod{UID: "gone"})
	w.bridge("node-1", old)
	w.record("st-live", journal.ToCSI, journal.Finished)
	w.record("st-changed", journal.ToCSI, journal.Finished)
	w.record("st-back", journal.ToFlexVolume, journal.Finished)
	w.record("st-halted", journal.ToCSI, journal.Retained, func(r *journal.Record) { r.Trouble = "the webhook says no" })
	w.record("st-window", journal.ToCSI, journal.Deleted)
	volumes := w.Admin().CoreV1().PersistentVolumes()
	w.check(volumes.Delete(w.t.Context(), "st-window", metav1.DeleteOptions{}))
	_, err := volumes.Patch(w.t.Context(), "st-window", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	w.check(err)

	var s migrate.Situation
	get := func(status int, args ...string) map[string]migrate.VolumeStatus {
		w.t.Helper()
		out, _ := w.migrateCommand(status, append([]string{"status", "-o", "json"}, args...)...)
		s = migrate.Situation{}
		w.check(json.Unmarshal([]byte(out), &s))
		all := map[string]migrate.VolumeStatus{}
		for _, v := range s.Volumes {
			all[v.Name] = v
		}
		return all
	}
	all := get(1) // one is in its window
	for name, want := range map[string]struct {
		state       migrate.State
		now         string
		trouble, do string
	}{
		"st-live":    {migrate.Migrated, "CSI", "", "2 mounts of the bridge stay until their pods are restarted"},
		"st-bare":    {migrate.Migrated, "CSI", "", ""},
		"st-changed": {migrate.Contradictory, "FlexVolume", "another client has replaced it", "--show-managed-fields"},
		"st-back":    {migrate.TakenBack, "FlexVolume", "", ""},
		"st-halted":  {migrate.Halted, "FlexVolume", "the webhook says no", "flex2csi migrate resume st-halted goes on, flex2csi migrate rollback st-halted goes back"},
		"st-window":  {migrate.WithoutVolume, "none", "there is no PersistentVolume now", "at once: flex2csi migrate resume st-window"},
	} {
		v := all[name]
		if v.State != want.state || v.Now != want.now || !strings.Contains(v.Trouble, want.trouble) || want.trouble == "" && v.Trouble != "" || !strings.Contains(v.Next, want.do) || want.do == "" && v.Next != "" {
			w.t.Errorf("%s: %+v", name, v)
		}
	}
	want := []migrate.OldMount{{Node: "node-1", UID: "gone"}, {Node: "node-1", Pod: "default/st-live", UID: string(pod.UID), TakenOver: true}}
	if got := all["st-live"]; !slices.Equal(got.OldMounts, want) || got.FlexDriver != flexDriver || got.By != "eve@ws" || time.Since(got.Since) < time.Minute {
		w.t.Errorf("%+v", got)
	}
	if got := all["st-bare"]; got.FlexDriver != flexDriver || got.Handle != "vol-st-bare" || got.Claim != "default/st-bare" || got.Since.IsZero() {
		w.t.Errorf("%+v", got)
	}
	if s.Remaining[flexDriver] != 4 || len(s.Problems) > 0 || s.Holder != "" { // changed, back, halted, left
		w.t.Errorf("%+v", s)
	}
	out, _ := w.migrateCommand(1, "status")
	if !strings.HasPrefix(out, "URGENT: a migration stopped where there is no PersistentVolume: st-window.") {
		w.t.Error(out)
	}
	if one := get(1, "default/st-live", "missing"); len(one) != 1 {
		w.t.Errorf("%+v", one)
	}
	testHolder(w, get)
	testStaleDocument(w, get)
}

// testHolder: while a process has the Lease, what is unfinished is under way.
func testHolder(w *world, get func(int, ...string) map[string]migrate.VolumeStatus) {
	seconds, now, who := int32(30), metav1.NewMicroTime(time.Now()), "eve@ws/12/abc"
	leases := w.Admin().CoordinationV1().Leases(migrate.Namespace)
	lease, err := leases.Create(w.t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: migrate.LeaseName},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &who, LeaseDurationSeconds: &seconds, RenewTime: &now},
	}, metav1.CreateOptions{})
	w.check(err)
	if all := get(0); all["st-halted"].State != migrate.UnderWay || all["st-window"].State != migrate.UnderWay {
		w.t.Errorf("%+v", all)
	}
	past := metav1.NewMicroTime(time.Now().Add(-time.Minute))
	lease.Spec.RenewTime = &past
	_, err = leases.Update(w.t.Context(), lease, metav1.UpdateOptions{})
	w.check(err)
	if all := get(1); all["st-halted"].State != migrate.Halted || all["st-window"].State != migrate.WithoutVolume {
		w.t.Errorf("%+v", all)
	}
}

// testStaleDocument: what a node said before it was started again is not so any
// more, and that is said.
func testStaleDocument(w *world, get func(int, ...string) map[string]migrate.VolumeStatus) {
	patch := []byte(`{"status":{"nodeInfo":{"bootID":"another"}}}`)
	_, err := w.Admin().CoreV1().Nodes().Patch(w.t.Context(), "node-1", types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	w.check(err)
	defer func() {
		_, err := w.Admin().CoreV1().Nodes().Patch(w.t.Context(), "node-1", types.MergePatchType, []byte(`{"status":{"nodeInfo":{"bootID":"`+bootID+`"}}}`), metav1.PatchOptions{}, "status")
		w.check(err)
	}()
	if v := get(1)["st-live"]; len(v.OldMounts) > 0 {
		w.t.Errorf("%+v", v)
	}
	out, _ := w.migrateCommand(1, "status")
	if !strings.Contains(out, "not known: ConfigMap flex2csi-nodes/node-1 is of before node node-1 was started the last time") {
		w.t.Error(out)
	}
}

func testFinish(w *world) {
	get := func(status int, args ...string) migrate.FinishReport {
		w.t.Helper()
		out, _ := w.migrateCommand(status, append([]string{"finish", "-o", "json"}, args...)...)
		var d migrate.FinishReport
		w.check(json.Unmarshal([]byte(out), &d))
		return d
	}
	wants := func(d migrate.FinishReport, driver string, texts ...string) {
		w.t.Helper()
		var b strings.Builder
		w.check(d.Show(report.Wide).Write(&b, report.Wide))
		for _, text := range texts {
			if !strings.Contains(b.String(), text) {
				w.t.Errorf("%s: no %q in\n%s", driver, text, b.String())
			}
		}
	}
	// Of these two nothing is mounted; one has a PersistentVolume.
	w.FlexVolume("fi-share", "example.com/share", "", map[string]string{"share": "a"})
	wants(get(1, "--driver", "example.com/share"), "example.com/share", "PersistentVolumes that are FlexVolumes of it (1): fi-share", "flex2csi migrate plan --driver example.com/share")
	d := get(0, "--driver", "example.com/none")
	wants(d, "none", "FlexVolume driver example.com/none: is on no node, and nothing needs it")

	// A CronJob between two runs needs its driver, too.
	_, err := w.Admin().BatchV1().CronJobs("default").Create(w.t.Context(), &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Name: "nightly"},
		Spec: batchv1.CronJobSpec{Schedule: "0 0 1 1 *", JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "i"}},
			Volumes: []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{FlexVolume: &corev1.FlexVolumeSource{Driver: "example.com/none"}}}},
		}}}}},
	}, metav1.CreateOptions{})
	w.check(err)
	wants(get(1, "--driver", "example.com/none"), "none", "CronJob default/nightly, volume scratch")

	// What was mounted by the bridge keeps its node, and the one that is migrated keeps nothing else.
	w.disk("fi-disk", func(pv *corev1.PersistentVolume) {
		pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
	})
	pod := w.pod("fi-disk", "node-2", "fi-disk")
	w.attached("fi-disk", "node-2")
	w.swapped("fi-disk")
	w.bridge("node-2", has("fi-disk", pod))
	d = get(1)
	wants(d, flexDriver, "pods that have a mount of the bridge (1): pod default/fi-disk, volume fi-disk", "volumes that were migrated",
		"volumes that were to be deleted with their claim, and are kept now (Retain) (1): fi-disk", "control plane has adopted", "FlexVolume drivers that are still needed", "The bridge: IS NEEDED STILL")
	if d.Bridge.Free || len(d.Problems) > 0 {
		w.t.Errorf("%+v", d)
	}
	w.record("fi-share", journal.ToCSI, journal.Retained, func(r *journal.Record) { r.FlexDriver = "example.com/share" })
	wants(get(1, "--driver", "example.com/share"), "share", "migrations that are not finished (1): fi-share")
	testFree(w, get, wants)
	testUnknown(w)
}

// testFree: when nothing needs a driver any more it says so, and what to type.
func testFree(w *world, get func(int, ...string) migrate.FinishReport, wants func(migrate.FinishReport, string, ...string)) {
	d := bridgestatus.NodeVolumesOf("bare", bootID, "v1", time.Now(), nil, nil)
	d.FlexDrivers = []string{"example.com/none"}
	text, err := d.Encode()
	w.check(err)
	_, err = w.Admin().CoreV1().ConfigMaps(bridgestatus.Namespace).Create(w.t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "bare"}, Data: map[string]string{bridgestatus.Key: text}}, metav1.CreateOptions{})
	w.check(err)
	w.ServiceAccount(migrate.Namespace, "default")
	daemon := w.Pod(migrate.Namespace, "flex2csi-node-abc", "bare", "default")
	daemon.Labels = map[string]string{"app.kubernetes.io/component": "node"}
	_, err = w.Admin().CoreV1().Pods(migrate.Namespace).Update(w.t.Context(), daemon, metav1.UpdateOptions{})
	w.check(err)
	w.check(w.Admin().BatchV1().CronJobs("default").Delete(w.t.Context(), "nightly", metav1.DeleteOptions{}))
	wants(get(0, "--driver", "example.com/none"), "none", "can be taken away",
		"kubectl -n flex2csi exec flex2csi-node-abc -c serve -- /flex2csi uninstall --driver example.com/none", "node bare: nothing of it is there")
}

// testUnknown: a user who may not read everything is told that nothing is free.
func testUnknown(w *world) {
	w.ServiceAccount("default", "looker")
	pod := w.Pod("default", "looker", "node-2", "looker")
	rbac := w.Admin().RbacV1()
	_, err := rbac.ClusterRoles().Create(w.t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "looker"},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{"", "apps", "storage.k8s.io"}, Verbs: []string{"get", "list"},
			Resources: []string{"persistentvolumes", "configmaps", "pods", "nodes", "deployments", "statefulsets", "daemonsets", "replicasets", "replicationcontrollers", "volumeattachments", "storageclasses"},
		}},
	}, metav1.CreateOptions{})
	w.check(err)
	_, err = rbac.ClusterRoleBindings().Create(w.t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "looker"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "looker"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: "looker"}},
	}, metav1.CreateOptions{})
	w.check(err)
	kubeconfig := w.Kubeconfig(w.ServiceAccountToken(pod))
	var out string
	testenv.Eventually(w.t, "the role holds", func() bool {
		var errs string
		out, errs = w.migrateCommand(1, "finish", "--driver", "example.com/none", "--kubeconfig", kubeconfig)
		return !strings.Contains(errs, "persistentvolumes")
	})
	for _, want := range []string{"FlexVolume driver example.com/none: not known", "not known: what makes pods with FlexVolumes: list cronjobs", "take nothing away"} {
		if !strings.Contains(out, want) {
			w.t.Errorf("no %q in\n%s", want, out)
		}
	}
}
