package migrate_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/migrate"
)

// testRights: the role of docs/migrate.md is enough to plan, and the plan says
// what it lacks to migrate.
func testRights(w *world) {
	text, err := os.ReadFile("../../../docs/migrate.md")
	w.check(err)
	_, role, ok := strings.Cut(string(text), "```yaml\n# What flex2csi migrate plan asks for.\n")
	if !ok {
		w.t.Fatal("docs/migrate.md has no role")
	}
	role, _, _ = strings.Cut(role, "```")
	file := filepath.Join(w.t.TempDir(), "role.yaml")
	w.check(os.WriteFile(file, []byte(role), 0o600))
	w.Apply(file)
	w.ServiceAccount("default", "planner")
	_, err = w.Admin().RbacV1().ClusterRoleBindings().Create(w.t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "planner"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "flex2csi-migrate-plan"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: "planner"}},
	}, metav1.CreateOptions{})
	w.check(err)
	pod := w.Pod("default", "planner", "node-2", "planner")
	reader := w.cluster(w.ServiceAccountToken(pod))
	var plan *migrate.Plan
	eventually(w.t, "the role holds", func() bool {
		plan, err = w.planner(reader).Plan(w.t.Context(), &migrate.Selection{Names: []string{"live", "share2"}})
		return err == nil
	})
	says(w.t, plan.Volumes[0], migrate.Live, "dry-run", migrate.OK, "")
	says(w.t, plan.Volumes[1], migrate.Live, "secrets", migrate.Decide, "is not known")
	if c := plan.Checks[0]; c.Status != migrate.Decide || !strings.Contains(c.Evidence, "delete persistentvolumes") || strings.Contains(c.Evidence, "list persistentvolumes") {
		w.t.Errorf("%+v", c)
	}
	if c := w.plan(migrate.Selection{Names: []string{"live"}}).Checks[0]; c.Status != migrate.OK {
		w.t.Errorf("%+v", c)
	}
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(60 * time.Second); !holds(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within a minute", what)
		}
	}
}
