package migrate_test

import (
	"context"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// testRights: the role of plan-role.yaml is enough to plan, and the plan says
// what it lacks to migrate.
func testRights(w *world) {
	w.Apply(roleFile("plan-role.yaml"))
	w.ServiceAccount("default", "planner")
	bind := func(role string) {
		_, err := w.Admin().RbacV1().ClusterRoleBindings().Create(w.t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role + "-planner"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: "planner"}},
		}, metav1.CreateOptions{})
		w.check(err)
	}
	bind("flex2csi-migrate-plan")
	pod := w.Pod("default", "planner", "node-2", "planner")
	reader := w.cluster(w.ServiceAccountToken(pod))
	var plan *migrate.Plan
	planned := func() (err error) {
		plan, err = w.planner(reader).Plan(w.t.Context(), &migrate.Selection{Names: []string{"live", "share2"}})
		return err
	}
	testenv.Eventually(w.t, "the role holds", func() bool { return planned() == nil })
	says(w.t, plan.Volumes[0], migrate.Live, "dry-run", migrate.Note, "replacement not checked by the API server (this user may not create persistentvolumes)")
	bind("flex2csi-migrate-plan-dry-run")
	testenv.Eventually(w.t, "the role for dry runs holds", func() bool {
		return planned() == nil && !strings.Contains(plan.Volumes[0].Checks[len(plan.Volumes[0].Checks)-1].Evidence, "replacement not checked")
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

// testMigratorRights: with the roles of migrate-role.yaml a volume is migrated and
// taken back, and the plan misses none, also where a pod has to be restarted.
func testMigratorRights(w *world) {
	w.Apply(roleFile("migrate-role.yaml"))
	w.ServiceAccount("default", "migrator")
	subjects := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: "migrator"}}
	rbac, meta, ctx := w.Admin().RbacV1(), metav1.ObjectMeta{Name: "flex2csi-migrate"}, w.t.Context()
	_, err := rbac.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "flex2csi-migrate"},
	}, metav1.CreateOptions{})
	w.check(err)
	_, err = rbac.RoleBindings(migrate.Namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: meta, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "flex2csi-migrate"},
	}, metav1.CreateOptions{})
	w.check(err)
	cluster := w.cluster(w.ServiceAccountToken(w.Pod("default", "migrator", "node-2", "migrator")))

	w.disk("righted", func(pv *corev1.PersistentVolume) {
		pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
	})
	r := w.journalOf(cluster, w.t.TempDir()+"/journal")
	r.Options.Accept = []string{"reclaim-policy"}
	var plan *migrate.Plan
	testenv.Eventually(w.t, "the roles hold", func() bool {
		plan, err = r.Planner.Plan(ctx, &migrate.Selection{Names: []string{"righted", "live", "restart"}})
		return err == nil && plan.Checks[0].Status == migrate.OK
	})
	if v := plan.Volumes[1]; v.Name != "restart" || v.Method != migrate.PodRestart {
		w.t.Errorf("%+v", v)
	}
	lease, err := journal.TakeLock(ctx, cluster, wants("migrator"))
	w.check(err)
	defer func() { _ = lease.Release(context.WithoutCancel(ctx)) }()
	r.Lease = lease
	plan, err = r.Planner.Plan(ctx, &migrate.Selection{Names: []string{"righted"}})
	w.check(err)
	tasks, left := migrate.Choose(plan, r.Options)
	if len(left) > 0 {
		w.t.Fatalf("%+v", left)
	}
	done := func(results []migrate.Result, err error) {
		w.t.Helper()
		w.check(err)
		if len(results) != 1 || results[0].Outcome != migrate.Done {
			w.t.Fatalf("%+v", results)
		}
	}
	done(r.Apply(ctx, tasks))
	records, err := r.Reversible(ctx, []string{"righted"})
	w.check(err)
	done(r.Rollback(ctx, records))
}

// roleFile is the path of a file of install/migrate with roles for people.
func roleFile(file string) string { return filepath.Join("../../../install/migrate", file) }
