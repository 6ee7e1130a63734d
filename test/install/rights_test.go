package install

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/flex2csi/flex2csi/test/install/render"
	"github.com/flex2csi/flex2csi/test/rights"
)

const (
	nodeAccount       = "flex2csi-node"
	controllerAccount = "flex2csi-controller"
	metricsAccount    = "flex2csi-metrics"
)

// given are the rights that objects give, by ServiceAccount. That of a role of
// Kubernetes itself is what is documented of it.
func given(t *testing.T, objects []*unstructured.Unstructured) map[string][]string {
	t.Helper()
	rules := map[string][]rbacv1.PolicyRule{"ClusterRole system:auth-delegator": {
		{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"}, Verbs: []string{"create"}},
		{APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews"}, Verbs: []string{"create"}},
	}}
	for _, o := range objects {
		if o.GetKind() == "Role" || o.GetKind() == "ClusterRole" {
			rules[roleKey(o.GetKind(), o.GetNamespace(), o.GetName())] = get[[]rbacv1.PolicyRule](t, o, "rules")
		}
	}
	all := map[string][]string{}
	for _, o := range objects {
		if o.GetKind() != "RoleBinding" && o.GetKind() != "ClusterRoleBinding" {
			continue
		}
		var binding rbacv1.RoleBinding // the other one has the same fields
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &binding); err != nil {
			t.Fatal(err)
		}
		namespace := o.GetNamespace()
		role, ok := rules[roleKey(binding.RoleRef.Kind, namespace, binding.RoleRef.Name)]
		if !ok {
			t.Errorf("%s %s is to %s %s, which is not there", o.GetKind(), o.GetName(), binding.RoleRef.Kind, binding.RoleRef.Name)
		}
		for _, s := range binding.Subjects {
			if s.Kind != rbacv1.ServiceAccountKind || s.Namespace != "flex2csi" {
				t.Errorf("%s %s is for %v", o.GetKind(), o.GetName(), s)
			}
			all[s.Name] = append(all[s.Name], rights.Of(namespace, role...)...)
		}
	}
	return all
}

func roleKey(kind, namespace, name string) string {
	if kind == "ClusterRole" {
		return kind + " " + name
	}
	return fmt.Sprintf("%s %s/%s", kind, namespace, name)
}

// documented are the rights below headings of docs/rbac.md.
func documented(t *testing.T, headings ...string) []string {
	t.Helper()
	var all []string
	for _, heading := range headings {
		of, err := rights.Table("../../"+rights.Document, heading)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, of...)
	}
	return all
}

// TestRightsAreDocumented: docs/rbac.md has each right that a component gives, and no
// other, as kustomize and as Helm make it.
func TestRightsAreDocumented(t *testing.T) {
	const node, controller, attach = "### Rights of the nodes", "### Rights of the controller", "### Rights to attach"
	base := map[string][]string{nodeAccount: {node}, controllerAccount: {controller}}
	with := func(more map[string][]string) map[string][]string {
		all := maps.Clone(base)
		for account, headings := range more {
			all[account] = append(slices.Clone(all[account]), headings...)
		}
		return all
	}
	metrics := map[string][]string{nodeAccount: {"### Rights of the proxy"}, controllerAccount: {"### Rights of the proxy"}, metricsAccount: {"### Rights of Prometheus"}}
	for _, test := range []struct {
		component string // empty: none
		values    values
		want      map[string][]string
	}{
		{"", values{}, base},
		{"attach", values{"attach": values{"enabled": true}}, with(map[string][]string{controllerAccount: {attach}})},
		{"monitoring", values{"metrics": values{"enabled": true}}, with(metrics)},
		{"migrate", values{"migrate": values{"enabled": true}}, with(map[string][]string{nodeAccount: {"## For migrations"}})},
	} {
		t.Run("with "+test.component, func(t *testing.T) {
			var components []string
			if test.component != "" {
				components = append(components, test.component)
			}
			compareRights(t, test.want, overlay(t, "kubeadm", components...))
			compareRights(t, test.want, release(t, test.values))
		})
	}
	t.Run("with Secrets and tokens", func(t *testing.T) {
		want := with(map[string][]string{nodeAccount: {"### Rights for Secrets", "### Rights for tokens"}})
		compareRights(t, want, release(t, values{"rbac": values{
			"secrets":              []any{values{"namespace": "flex2csi", "names": []any{"credentials"}}},
			"serviceAccountTokens": values{"enabled": true, "audiences": []any{"vault"}},
		}}))
		for _, file := range []string{"node-secrets.yaml", "node-tokens.yaml"} {
			objects, err := render.File(manifests + "/rbac/" + file)
			if err != nil {
				t.Fatal(err)
			}
			for _, right := range given(t, objects)[nodeAccount] {
				if !slices.Contains(documented(t, want[nodeAccount]...), right) {
					t.Errorf("%s gives the right to %s, which is not documented", file, right)
				}
			}
		}
	})
}

func compareRights(t *testing.T, headings map[string][]string, objects []*unstructured.Unstructured) {
	t.Helper()
	want, got := map[string][]string{}, given(t, objects)
	for account := range got {
		slices.Sort(got[account])
	}
	for account, of := range headings {
		want[account] = documented(t, of...)
		slices.Sort(want[account])
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rights in docs/rbac.md (-), in the manifests (+):\n%s", diff)
	}
}
