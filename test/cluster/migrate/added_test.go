package migrate_test

import (
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/test/controlplane"
)

// testAdded: what was not asked for and a policy adds to the replacement is
// seen before, and in the gap, where a person decides.
func testAdded(w *world) {
	s := w.idle("added")
	w.adds("mount-options", "object.metadata.name.startsWith('added')", "/spec/mountOptions", `["ro"]`)
	s.refused(w.migrator(controlplane.Admin), `spec.mountOptions is ["ro"], which was not asked for`)
	w.addsNoMore("mount-options")
	s.gone()

	s = w.idle("added-late")
	o := w.migrator(controlplane.Admin)
	r := o.at(controlplane.Moment{N: 1, Fits: created, Then: func() {
		w.adds("read-only", "object.metadata.name == 'added-late' && has(object.spec.csi)", "/spec/csi/readOnly", "true")
	}}, "apply", s.name)
	r.wants(1, `was stored otherwise than it was to be: spec.csi.readOnly is true, which was not asked for`)
	w.addsNoMore("read-only")
	o.do(0, "rollback", s.name)
	s.untouched()
	s.gone()
}

// adds has the API server add to volumes that are created.
func (w *world) adds(name, to, path, value string) {
	w.t.Helper()
	api := w.Admin().AdmissionregistrationV1()
	_, err := api.MutatingAdmissionPolicies().Create(w.t.Context(), &admissionv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.MutatingAdmissionPolicySpec{
			ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"persistentvolumes"}},
			}}}},
			MatchConditions: []admissionv1.MatchCondition{{Name: "these", Expression: to}},
			Mutations: []admissionv1.Mutation{{
				PatchType: admissionv1.PatchTypeJSONPatch,
				JSONPatch: &admissionv1.JSONPatch{Expression: `[JSONPatch{op: "add", path: "` + path + `", value: ` + value + `}]`},
			}},
		},
	}, metav1.CreateOptions{})
	w.check(err)
	_, err = api.MutatingAdmissionPolicyBindings().Create(w.t.Context(), &admissionv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name},
	}, metav1.CreateOptions{})
	w.check(err)
	time.Sleep(3 * time.Second) // until it holds
}

func (w *world) addsNoMore(name string) {
	w.t.Helper()
	api := w.Admin().AdmissionregistrationV1()
	w.check(api.MutatingAdmissionPolicyBindings().Delete(w.t.Context(), name, metav1.DeleteOptions{}))
	w.check(api.MutatingAdmissionPolicies().Delete(w.t.Context(), name, metav1.DeleteOptions{}))
	time.Sleep(3 * time.Second)
}
