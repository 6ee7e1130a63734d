package assess_test

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"github.com/flex2csi/flex2csi/internal/assess"
	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
)

// TestRoles: the roles of install/migrate did not let assess and finish list podtemplates, so
// that neither ever had all of a cluster. Custom resources are for the operator to add.
func TestRoles(t *testing.T) {
	for file, read := range map[string]func(*testing.T) []clienttesting.Action{
		"plan-role.yaml": func(t *testing.T) []clienttesting.Action {
			client, actions := recorded(t)
			if err := assess.Cluster(t.Context(), client, &assess.Input{}); err != nil {
				t.Fatal(err)
			}
			return actions()
		},
		"migrate-role.yaml": func(t *testing.T) []clienttesting.Action {
			client, actions := recorded(t)
			o := &migrate.Observer{Client: client, Journal: journal.New(client, migrate.Namespace, ""), Now: time.Now}
			if _, err := o.Finish(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			return actions()
		},
	} {
		rules := clusterRoles(t, file)[0].Rules
		for _, a := range read(t) {
			r := a.GetResource()
			if r.Group != "argoproj.io" && !allows(rules, a.GetVerb(), r) {
				t.Errorf("%s does not allow to %s %s", file, a.GetVerb(), r)
			}
		}
	}
	custom := clusterRoles(t, "custom-resources-role.yaml")[0]
	if custom.Name != "flex2csi-migrate-custom-resources" || len(custom.Rules) > 0 || custom.AggregationRule == nil || len(custom.AggregationRule.ClusterRoleSelectors) != 1 {
		t.Errorf("%+v", custom)
	}
}

func allows(rules []rbacv1.PolicyRule, verb string, r schema.GroupVersionResource) bool {
	return slices.ContainsFunc(rules, func(rule rbacv1.PolicyRule) bool {
		return slices.Contains(rule.APIGroups, r.Group) && slices.Contains(rule.Resources, r.Resource) && slices.Contains(rule.Verbs, verb)
	})
}

// clusterRoles are those of a file of install/migrate.
func clusterRoles(t *testing.T, file string) (all []rbacv1.ClusterRole) {
	t.Helper()
	data, err := os.ReadFile("../../install/migrate/" + file)
	if err != nil {
		t.Fatal(err)
	}
	for text := range strings.SplitSeq(string(data), "\n---\n") {
		var role rbacv1.ClusterRole
		if err := yaml.UnmarshalStrict([]byte(text), &role); err != nil {
			t.Fatal(err)
		}
		if role.Kind == "ClusterRole" {
			all = append(all, role)
		}
	}
	return all
}
