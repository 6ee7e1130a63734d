package rights

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
)

func TestOf(t *testing.T) {
	got := Of("flex2csi",
		rbacv1.PolicyRule{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, ResourceNames: []string{"one"}, Verbs: []string{"get", "update"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, Verbs: []string{"create"}})
	want := []string{
		"create serviceaccounts --subresource=token -n flex2csi",
		"get leases.coordination.k8s.io/one -n flex2csi", "update leases.coordination.k8s.io/one -n flex2csi",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestTable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rbac.md")
	text := "# A\n\n## One\n\n| right | request |\n|---|---|\n| `list pods` | x |\n| `get, watch nodes -n a` | `y` |\n\n### Two\n\n| `get secrets` | |\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := Table(file, "## One")
	if err != nil || !slices.Equal(got, []string{"get nodes -n a", "list pods", "watch nodes -n a"}) {
		t.Errorf("%q, %v", got, err)
	}
	for _, heading := range []string{"## Three", "# A"} {
		if got, err := Table(file, heading); err == nil {
			t.Errorf("below %s there is %q", heading, got)
		}
	}
}

// TestAudit: a right is used by a request for one object of many, and an unused or a
// refused one shows.
func TestAudit(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.log")
	const user = `"user":{"username":"system:serviceaccount:flex2csi:flex2csi-node"}`
	log := `{"verb":"get",` + user + `,"objectRef":{"resource":"leases","apiGroup":"coordination.k8s.io","namespace":"flex2csi","name":"one"},"annotations":{"authorization.k8s.io/decision":"allow"}}
{"verb":"list",` + user + `,"objectRef":{"resource":"pods"},"annotations":{"authorization.k8s.io/decision":"allow"}}
{"verb":"list",` + user + `,"objectRef":{"resource":"nodes"},"annotations":{"authorization.k8s.io/decision":"forbid"}}
{"verb":"get",` + user + `,"requestURI":"/version"}
{"verb":"list","user":{"username":"admin"},"objectRef":{"resource":"secrets"}}
{"kind":"Event","verb":"get","requestURI":"/api/killed-here{"kind":"Event","verb":"watch",` + user + `,"objectRef":{"resource":"pods"},"annotations":{"authorization.k8s.io/decision":"allow"}}
{"verb":"not yet whole`
	if err := os.WriteFile(file, []byte(log), 0o600); err != nil {
		t.Fatal(err)
	}
	a, err := ReadAudit(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(log+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadAudit(file); err == nil {
		t.Error("half an event counts as a whole one")
	}
	rights := []string{"get leases.coordination.k8s.io/one -n flex2csi", "get leases.coordination.k8s.io/two -n flex2csi", "list nodes", "list pods", "list secrets", "watch pods"}
	if diff := cmp.Diff([]string{"get leases.coordination.k8s.io/two -n flex2csi", "list nodes", "list secrets"}, a.Unused("flex2csi-node", rights)); diff != "" {
		t.Error(diff)
	}
	if got := a.Beyond("flex2csi-node", []string{"list pods", "watch pods"}); !slices.Equal(got, []string{"list nodes"}) {
		t.Errorf("beyond its rights: %v", got)
	}
	if got := a.Beyond("flex2csi-node", rights); len(got) > 0 {
		t.Errorf("beyond all rights: %v", got)
	}
	if got := a.Forbidden["flex2csi-node"]; len(got) != 1 || got[0].String() != "list nodes (1 times)" {
		t.Errorf("refused: %v", got)
	}
}
