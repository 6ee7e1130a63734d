package migrate_test

import (
	"context"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// testPutBackByOthers: another client creates the old volume in the gap. It is left
// alone; a person can go on, or leave it at that.
func testPutBackByOthers(w *world) {
	for name, goOn := range map[string]bool{"gitops-on": true, "gitops-back": false} {
		w.disk(name)
		claim, was := w.claim(name).UID, w.volume(name)
		p := w.operator(migrate.Options{})
		p.moment("create", "persistentvolumes", false, func() { w.again(was) })
		w.came(p.apply(name), migrate.Unfinished, journal.Deleted, "another client has put that back")
		put := w.volume(name)
		if put.Spec.FlexVolume == nil || put.DeletionTimestamp != nil {
			w.t.Fatalf("%+v", put)
		}
		if goOn {
			w.came(p.resume(name), migrate.Done, journal.Finished, "")
			w.isCSI(name, claim)
			continue
		}
		w.came(p.rollback(name), migrate.Done, journal.Finished, "")
		if now := w.volume(name); now.UID != put.UID {
			w.t.Errorf("%+v", now)
		}
		w.isFlex(was, claim)
	}
}

// again creates a volume once more, as one who has the manifest does.
func (w *world) again(was *corev1.PersistentVolume) {
	pv := was.DeepCopy()
	pv.ResourceVersion, pv.UID = "", ""
	_, err := w.Admin().CoreV1().PersistentVolumes().Create(context.Background(), pv, metav1.CreateOptions{})
	if err != nil {
		w.t.Error(err)
	}
}

// testForeign: a volume that is neither of the two is not touched.
func testForeign(w *world) {
	w.disk("foreign-run")
	claim, was := w.claim("foreign-run").UID, w.volume("foreign-run")
	p := w.operator(migrate.Options{})
	p.moment("create", "persistentvolumes", false, func() {
		other := was.DeepCopy()
		other.Spec.FlexVolume.Options = map[string]string{"volumeID": "another"}
		w.again(other)
	})
	w.came(p.apply("foreign-run"), migrate.Unfinished, journal.Deleted, "which another client has created")
	other := w.volume("foreign-run")
	w.came(p.resume("foreign-run"), migrate.Unfinished, journal.Deleted, "which another client has created")
	w.came(p.rollback("foreign-run"), migrate.Unfinished, journal.Deleted, "which another client has created")
	if now := w.volume("foreign-run"); now.UID != other.UID || now.DeletionTimestamp != nil {
		w.t.Errorf("%+v", now)
	}
	w.takeAway("foreign-run")
	w.came(p.resume("foreign-run"), migrate.Done, journal.Finished, "")
	w.isCSI("foreign-run", claim)
}

// testRefusedInWindow: an admission policy that comes in the gap lets the
// replacement not in. The old volume is put back.
func testRefusedInWindow(w *world) {
	w.disk("refused-run")
	claim, was := w.claim("refused-run").UID, w.volume("refused-run")
	p := w.operator(migrate.Options{})
	p.moment("delete", "persistentvolumes", true, func() { w.policy("refused-run") })
	w.came(p.apply("refused-run"), migrate.PutBack, journal.Finished, "no CSI volumes here")
	w.isFlex(was, claim)
	policies := w.Admin().AdmissionregistrationV1()
	w.check(policies.ValidatingAdmissionPolicyBindings().Delete(w.t.Context(), "refused-run", metav1.DeleteOptions{}))
	w.check(policies.ValidatingAdmissionPolicies().Delete(w.t.Context(), "refused-run", metav1.DeleteOptions{}))
	testenv.Eventually(w.t, "the policy has gone", func() bool {
		pv := was.DeepCopy()
		pv.UID, pv.ResourceVersion, pv.Name = "", "", "refused-run-2"
		pv.Spec.FlexVolume, pv.Spec.CSI = nil, &corev1.CSIPersistentVolumeSource{Driver: csiDriver, VolumeHandle: "x"}
		_, err := w.Admin().CoreV1().PersistentVolumes().Create(w.t.Context(), pv, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err == nil
	})
	w.came(p.apply("refused-run"), migrate.Done, journal.Finished, "")
	w.isCSI("refused-run", claim)
}

// policy refuses CSI volumes of a name, and waits until it does.
func (w *world) policy(name string) {
	policies, deny := w.Admin().AdmissionregistrationV1(), admissionv1.Deny
	fail := admissionv1.Fail
	_, err := policies.ValidatingAdmissionPolicies().Create(context.Background(), &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: &fail,
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"persistentvolumes"}},
			}}}},
			Validations: []admissionv1.Validation{{Expression: "!object.metadata.name.startsWith('" + name + "') || !has(object.spec.csi)", Message: "no CSI volumes here"}},
		},
	}, metav1.CreateOptions{})
	w.check(err)
	_, err = policies.ValidatingAdmissionPolicyBindings().Create(context.Background(), &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: name, ValidationActions: []admissionv1.ValidationAction{deny}},
	}, metav1.CreateOptions{})
	w.check(err)
	testenv.Eventually(w.t, "the policy holds", func() bool {
		_, err := w.Admin().CoreV1().PersistentVolumes().Create(context.Background(), &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: name + "-probe"},
			Spec: corev1.PersistentVolumeSpec{
				Capacity: w.volume("idle-run").Spec.Capacity, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: csiDriver, VolumeHandle: "x"}},
			},
		}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil && strings.Contains(err.Error(), "no CSI volumes here")
	})
}

// testFinalizer: another client sets a finalizer after the deletion.
func testFinalizer(w *world) {
	w.disk("kept")
	claim := w.claim("kept").UID
	p := w.operator(migrate.Options{})
	p.moment("delete", "persistentvolumes", false, func() {
		w.change("kept", func(pv *corev1.PersistentVolume) { pv.Finalizers = append(pv.Finalizers, "example.com/keep") })
	})
	// It is another one than was accepted by then, and is looked at once more.
	w.came(p.apply("kept"), migrate.Unfinished, journal.Retained, "example.com/keep")
	if now := w.volume("kept"); now.DeletionTimestamp != nil {
		w.t.Fatalf("%+v", now)
	}
	w.change("kept", func(pv *corev1.PersistentVolume) { pv.Finalizers = nil })
	// The API server takes no new finalizer for what is being deleted.
	w.came(p.resume("kept"), migrate.Done, journal.Finished, "")
	w.isCSI("kept", claim)
}

// testAway: the API server is down in the gap, and comes back.
func testAway(w *world) {
	w.disk("away")
	claim := w.claim("away").UID
	p := w.operator(migrate.Options{})
	p.moment("patch", "persistentvolumes", true, func() {
		go func() {
			p.proxy.Away()
			time.Sleep(2 * time.Second)
			p.proxy.Back()
		}()
	})
	w.came(p.apply("away"), migrate.Done, journal.Finished, "")
	w.isCSI("away", claim)

	// It is not given up, unless a person does.
	w.disk("away-2")
	p.Options.Timeout = time.Second
	tasks := p.tasks("away-2")
	ctx, kill := context.WithTimeout(w.t.Context(), 5*time.Second)
	defer kill()
	p.moment("create", "persistentvolumes", false, p.proxy.Away)
	results, err := p.Apply(ctx, tasks)
	w.check(err)
	w.came(results, migrate.Interrupted, journal.Deleted, "")
	p.proxy.Back()
	p.Options.Timeout = 30 * time.Second
	w.came(p.resume("away-2"), migrate.Done, journal.Finished, "")
	w.isCSI("away-2", w.claim("away-2").UID)
}

// testChanged: the volume is changed between the look and the deletion. A label or an annotation
// goes along; it had been a reason to stop, and resume did not help.
func testChanged(w *world) {
	w.disk("changed")
	claim := w.claim("changed").UID
	p := w.operator(migrate.Options{})
	p.moment("delete", "persistentvolumes", false, func() {
		w.change("changed", func(pv *corev1.PersistentVolume) { pv.Annotations = map[string]string{"example.com/note": "new"} })
	})
	w.came(p.apply("changed"), migrate.Done, journal.Finished, "")
	w.isCSI("changed", claim)
	if w.volume("changed").Annotations["example.com/note"] != "new" {
		w.t.Error("the annotation is lost")
	}
}
