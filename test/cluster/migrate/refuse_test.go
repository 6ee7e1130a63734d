package migrate_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	admissionapi "k8s.io/api/admission/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/test/controlplane"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// TestRefused: what cannot be done is refused before anything is touched, and
// what turns out later not to be possible is taken back, or waits.
func TestRefused(t *testing.T) {
	w := start(t)
	w.guard()
	for _, test := range []struct {
		name string
		run  func(*world)
	}{
		{"Volumes", testRefusedVolumes},
		{"Node", testRefusedNode},
		{"Quota", testQuota},
		{"EachRight", testEachRight},
		{"Policies", testPolicies},
		{"Added", testAdded},
		{"Webhook", testWebhook},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(w.with(t)) })
	}
}

// refused wants apply to say no, and to have changed nothing.
func (s *subject) refused(o *migrator, texts ...string) {
	s.w.t.Helper()
	before := s.w.volume(s.name).ResourceVersion
	o.trace()
	r := o.begin("apply", s.name)
	r.wait()
	r.wants(1, texts...)
	for _, q := range o.trace() {
		if q.Changes() && q.Resource != "leases" {
			s.w.t.Errorf("%s: it has asked for %s %s", s.name, q, q.Name)
		}
	}
	if after := s.w.volume(s.name).ResourceVersion; after != before {
		s.w.t.Errorf("%s: the volume was changed", s.name)
	}
}

func testRefusedVolumes(w *world) {
	o := w.migrator(controlplane.Admin)
	s := w.idle("with-finalizer")
	w.change(s.name, func(pv *corev1.PersistentVolume) { pv.Finalizers = append(pv.Finalizers, "example.com/keep") })
	s.refused(o, "example.com/keep")
	w.change(s.name, func(pv *corev1.PersistentVolume) { pv.Finalizers = nil })
	s.gone()

	s = w.idle("with-twin")
	w.PersistentVolume("the-twin", corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: csiDriver, VolumeHandle: "vol-with-twin"}})
	s.refused(o, "the-twin")
	s.gone()

	s = w.idle("undecided")
	w.change(s.name, func(pv *corev1.PersistentVolume) {
		pv.Annotations = map[string]string{"argocd.argoproj.io/tracking-id": "shop:/PersistentVolume:default/undecided"}
	})
	s.refused(o, "owners")
	o.do(0, "apply", s.name, "--accept", "owners")
	s.gone()

	s = w.idle("offline-only")
	w.pod("offline-only", "node-1", s.name) // nothing says that the bridge has it
	s.refused(o, "bridge")
}

// testRefusedNode: of two nodes with pods one does not have the CSI driver.
func testRefusedNode(w *world) {
	s := w.withPod("one-node")
	w.pod("one-node-2", "bare", s.name)
	s.refused(w.migrator(controlplane.Admin), "node bare", "csi-node")
}

// testQuota: the namespace of the journal takes no more ConfigMaps.
func testQuota(w *world) {
	s := w.idle("quota")
	quotas := w.Admin().CoreV1().ResourceQuotas(migrate.Namespace)
	q, err := quotas.Create(w.t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "none"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/configmaps": resource.MustParse("0")}},
	}, metav1.CreateOptions{})
	w.check(err)
	// No controller counts here: what it would say.
	q.Status.Hard, q.Status.Used = q.Spec.Hard, corev1.ResourceList{"count/configmaps": resource.MustParse("0")}
	_, err = quotas.UpdateStatus(w.t.Context(), q, metav1.UpdateOptions{})
	w.check(err)
	o := w.migrator(controlplane.Admin)
	time.Sleep(2 * time.Second) // the quota is known
	r := o.begin("apply", s.name)
	r.wait()
	r.wants(1, "quota")
	for _, q := range o.trace() {
		if q.Changes() && q.Resource != "leases" && q.Resource != "configmaps" {
			w.t.Errorf("it has asked for %s %s", q, q.Name)
		}
	}
	w.check(quotas.Delete(w.t.Context(), "none", metav1.DeleteOptions{}))
	s.untouched()
	testenv.Eventually(w.t, "nothing was begun, so it can be migrated then", func() bool {
		r := o.begin("apply", s.name)
		r.wait()
		return r.code() == 0
	})
	s.migrated()
	s.gone()
}

// testEachRight: without any one of them nothing is begun.
func testEachRight(w *world) {
	w.ServiceAccount("default", "each-right")
	token := w.ServiceAccountToken(w.Pod("default", "each-right", "node-2", "each-right"))
	rules := w.rulesOf("migrate-role.yaml")
	roles := w.Admin().RbacV1().ClusterRoles()
	role, err := roles.Create(w.t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "each-right"}, Rules: rules}, metav1.CreateOptions{})
	w.check(err)
	_, err = w.Admin().RbacV1().ClusterRoleBindings().Create(w.t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "each-right"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "each-right"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: "each-right"}},
	}, metav1.CreateOptions{})
	w.check(err)
	s := w.withPod("rights")
	var rights int
	for i, rule := range rules {
		if rule.APIGroups[0] == "apps" || rule.APIGroups[0] == "batch" {
			continue // of who makes pods, for plan and finish
		}
		for _, what := range rule.Resources {
			for _, verb := range rule.Verbs {
				role.Rules = without(rules, i, what, verb)
				role, err = roles.Update(w.t.Context(), role, metav1.UpdateOptions{})
				w.check(err)
				w.may(token, rule.APIGroups[0], what, verb, false)
				o := w.migrator(token)
				r := o.begin("apply", s.name, "--accept", "reclaim-policy")
				r.wait()
				rights++
				if r.code() == 0 && w.volume(s.name).Spec.CSI != nil {
					w.t.Logf("%s %s is not needed for it", verb, what)
					w.migrator(controlplane.Admin).do(0, "rollback", s.name)
					s.untouched()
					continue
				}
				r.wants(1, what)
				for _, q := range o.trace() {
					if q.Changes() && q.Resource != "leases" {
						w.t.Errorf("without %s %s it has asked for %s %s", verb, what, q, q.Name)
					}
				}
				s.untouched()
				o.proxy.Away()
			}
		}
	}
	role.Rules = rules
	_, err = roles.Update(w.t.Context(), role, metav1.UpdateOptions{})
	w.check(err)
	last := rules[len(rules)-1]
	w.may(token, last.APIGroups[0], last.Resources[len(last.Resources)-1], last.Verbs[len(last.Verbs)-1], true)
	o := w.migrator(token)
	o.do(0, "apply", s.name, "--accept", "reclaim-policy")
	s.migrated()
	o.do(0, "rollback", s.name)
	s.untouched()
	w.t.Logf("%d rights", rights)
	s.gone()
}

// rulesOf are the rules of the roles in a file of install/migrate, wherever they
// hold.
func (w *world) rulesOf(file string) (all []rbacv1.PolicyRule) {
	w.t.Helper()
	text, err := os.ReadFile(roleFile(file))
	w.check(err)
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var role rbacv1.ClusterRole
		w.check(yaml.Unmarshal([]byte(document), &role))
		all = append(all, role.Rules...)
	}
	return all
}

// without are the rules less one verb of one resource.
func without(rules []rbacv1.PolicyRule, at int, what, verb string) (all []rbacv1.PolicyRule) {
	for i, rule := range rules {
		if i != at {
			all = append(all, rule)
			continue
		}
		for _, r := range rule.Resources {
			verbs := slices.Clone(rule.Verbs)
			if r == what {
				verbs = slices.DeleteFunc(verbs, func(v string) bool { return v == verb })
			}
			if len(verbs) > 0 {
				all = append(all, rbacv1.PolicyRule{APIGroups: rule.APIGroups, Resources: []string{r}, ResourceNames: rule.ResourceNames, Verbs: verbs})
			}
		}
	}
	return all
}

// may waits until a user may do something, or may not.
func (w *world) may(token, group, what, verb string, want bool) {
	w.t.Helper()
	client := w.Client(token)
	testenv.Eventually(w.t, "the role holds", func() bool {
		r, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(w.t.Context(), &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{Group: group, Resource: what, Verb: verb, Namespace: "flex2csi"}},
		}, metav1.CreateOptions{})
		return err == nil && r.Status.Allowed == want
	})
}

// testPolicies: admission policies that come when it is too late to refuse.
func testPolicies(w *world) {
	// No user may create a CSI volume any more: the old one is put back.
	s := w.idle("policy-csi")
	o := w.migrator(controlplane.Admin)
	o.patience = 15 * time.Second
	r := o.at(controlplane.Moment{N: 1, Fits: created, Then: func() {
		w.refuses("no-csi", admissionv1.Create, "!has(object.spec.csi) || object.metadata.name != 'policy-csi'")
	}}, "apply", s.name)
	r.wants(1, "not by policy no-csi")
	w.t.Logf("%s", &r.out)
	if pv, err := w.Admin().CoreV1().PersistentVolumes().Get(w.t.Context(), s.name, metav1.GetOptions{}); err != nil {
		w.t.Logf("it is left without a volume: %v", err)
		o.do(0, "rollback", s.name)
	} else if pv.Spec.FlexVolume == nil {
		w.t.Errorf("%+v", pv)
	}
	w.allows("no-csi")
	s.bound()
	if r := o.onDisk(s.name); r.Stage != "Finished" {
		o.do(0, "rollback", s.name)
	}
	s.untouched()
	s.gone()

	// No user may create any volume: it waits for the operator.
	for i, then := range []string{"resume", "rollback"} {
		s := w.idle(fmt.Sprintf("policy-none-%d", i))
		o := w.migrator(controlplane.Admin)
		o.patience = 15 * time.Second
		o.proxy.At(&controlplane.Moment{N: 1, Fits: created, Then: func() {
			w.refuses("none", admissionv1.Create, "!object.metadata.name.startsWith('policy-none') || object.metadata.name.endsWith('probe')")
		}})
		o.begin("apply", s.name).killedSaying("not by policy none; it is tried again")
		s.kept()
		o.begin(then, s.name).killedSaying("not by policy none; it is tried again")
		s.kept()
		w.allows("none")
		r := o.begin(then, s.name)
		r.wait()
		if then == "resume" {
			r.wants(1, "not by policy none") // what was wanted first did not come about
		}
		s.untouched()
		s.gone()
	}

	// No user may delete volumes.
	s = w.idle("policy-delete")
	w.refuses("no-delete", admissionv1.Delete, "oldObject.metadata.name != 'policy-delete'")
	o = w.migrator(controlplane.Admin)
	o.patience = 15 * time.Second
	r = o.begin("apply", s.name)
	r.wait()
	r.wants(1, "not by policy no-delete")
	s.untouched() // the dry run finds it
	w.allows("no-delete")
	s.gone()

	// No user may remove finalizers: it stays as it is, being deleted.
	s = w.idle("policy-finalizers")
	w.change(s.name, func(pv *corev1.PersistentVolume) { pv.Finalizers = []string{"kubernetes.io/pv-protection"} })
	o = w.migrator(controlplane.Admin)
	o.patience = 15 * time.Second
	o.proxy.At(&controlplane.Moment{N: 1, Fits: deleted, After: true, Then: func() {
		w.refuses("no-patch", admissionv1.Update, "object.metadata.name != 'policy-finalizers'")
	}})
	o.begin("apply", s.name).killedSaying("not by policy no-patch")
	s.kept()
	w.allows("no-patch")
	o.do(0, "resume", s.name)
	s.migrated()
	s.gone()
}

// refuses has the API server refuse changes of volumes.
func (w *world) refuses(name string, operation admissionv1.OperationType, expression string) {
	w.t.Helper()
	api := w.Admin().AdmissionregistrationV1()
	_, err := api.ValidatingAdmissionPolicies().Create(w.t.Context(), &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{operation},
				Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"persistentvolumes"}},
			}}}},
			Validations: []admissionv1.Validation{{Expression: expression, Message: "not by policy " + name}},
		},
	}, metav1.CreateOptions{})
	w.check(err)
	_, err = api.ValidatingAdmissionPolicyBindings().Create(w.t.Context(), &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}},
	}, metav1.CreateOptions{})
	w.check(err)
	time.Sleep(3 * time.Second) // until it holds
}

func (w *world) allows(name string) {
	w.t.Helper()
	w.check(w.Admin().AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Delete(w.t.Context(), name, metav1.DeleteOptions{}))
	w.check(w.Admin().AdmissionregistrationV1().ValidatingAdmissionPolicies().Delete(w.t.Context(), name, metav1.DeleteOptions{}))
	time.Sleep(3 * time.Second)
}

// testWebhook: a webhook that refuses is heard before, and the run waits for one that dies while
// there is no volume.
func testWebhook(w *world) {
	var says atomic.Pointer[string]
	no := "the webhook says no"
	says.Store(&no)
	server := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		var review admissionapi.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(rw, err.Error(), http.StatusBadRequest)
			return
		}
		text := *says.Load()
		if text == "dead" {
			panic(http.ErrAbortHandler)
		}
		review.Response = &admissionapi.AdmissionResponse{UID: review.Request.UID, Allowed: text == "", Result: &metav1.Status{Message: text}}
		if text == "exists" { // of something else, as nothing of the volume's name is there
			review.Response.Result.Code, review.Response.Result.Reason = http.StatusConflict, metav1.StatusReasonAlreadyExists
		}
		review.Request = nil
		_ = json.NewEncoder(rw).Encode(review)
	}))
	w.t.Cleanup(server.Close)
	hooks := w.Admin().AdmissionregistrationV1().ValidatingWebhookConfigurations()
	_, err := hooks.Create(w.t.Context(), &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "hook"},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name: "hook.example.com", SideEffects: new(admissionv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
			FailurePolicy: new(admissionv1.Fail),
			ClientConfig: admissionv1.WebhookClientConfig{URL: &server.URL, CABundle: pem.EncodeToMemory(&pem.Block{
				Type: "CERTIFICATE", Bytes: server.Certificate().Raw,
			})},
			Rules: []admissionv1.RuleWithOperations{{Operations: []admissionv1.OperationType{admissionv1.Create}, Rule: admissionv1.Rule{
				APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"persistentvolumes"},
			}}},
		}},
	}, metav1.CreateOptions{})
	w.check(err)
	w.t.Cleanup(func() { w.check(hooks.Delete(context.WithoutCancel(w.t.Context()), "hook", metav1.DeleteOptions{})) })
	yes, dead := "", "dead"
	says.Store(&yes)
	time.Sleep(3 * time.Second)
	s := w.idle("webhook")
	says.Store(&no)
	s.refused(w.migrator(controlplane.Admin), "the webhook says no")

	says.Store(&yes)
	o := w.migrator(controlplane.Admin)
	o.patience = 30 * time.Second
	r := o.at(controlplane.Moment{N: 1, Fits: created, Then: func() {
		says.Store(&dead)
		time.AfterFunc(8*time.Second, func() { says.Store(&yes) })
	}}, "apply", s.name)
	w.t.Logf("%d\n%s", r.code(), &r.out)
	if r.code() != 0 {
		o.do(0, "resume", s.name)
	}
	s.migrated()

	o.patience = 10 * time.Second
	o.proxy.At(&controlplane.Moment{N: 1, Fits: created, Then: func() { says.Store(&dead) }})
	o.begin("rollback", s.name).killedSaying("hook.example.com")
	says.Store(&yes)
	o.do(0, "resume", s.name)
	s.untouched()
	s.gone()

	exists := "exists"
	s = w.idle("webhook-exists")
	o = w.migrator(controlplane.Admin)
	o.patience = 30 * time.Second
	r = o.at(controlplane.Moment{N: 1, Fits: created, Then: func() {
		says.Store(&exists)
		time.AfterFunc(5*time.Second, func() { says.Store(&yes) })
	}}, "apply", s.name)
	if r.code() != 1 || !strings.Contains(r.out.String(), "PUT BACK") {
		w.t.Errorf("%d\n%s", r.code(), &r.out)
	}
	s.untouched()
	s.gone()
}
