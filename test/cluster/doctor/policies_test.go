package doctor_test

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/flex2csi/flex2csi/internal/doctor"
	"github.com/flex2csi/flex2csi/test/controlplane"
)

// lookAtPolicies: those of attachments are missing, do not deny, or have another
// parameter; as a person in the name of flex2csi sees it, and as a daemon does.
func lookAtPolicies(t *testing.T, p *controlplane.Plane) {
	const install = "../../../install/"
	p.Apply(install+"namespace.yaml", install+"rbac/node.yaml", install+"rbac/controller.yaml", install+"components/attach/attach-rbac.yaml")
	daemon := p.ServiceAccountToken(p.Pod("flex2csi", "flex2csi-policies", "node-1", "flex2csi-node"))
	const node, controller = "system:serviceaccount:flex2csi:flex2csi-node", "system:serviceaccount:flex2csi:flex2csi-controller"
	until := func(what string, wanted ...string) {
		t.Helper()
		for token, accounts := range map[string][]string{controlplane.Admin: {node, controller}, daemon: {node}} {
			expected := []string{}
			for _, w := range wanted {
				if w == "attachment-denied" {
					expected = append(expected, w+" "+driver)
					continue
				}
				for _, a := range accounts {
					expected = append(expected, w+" "+a)
				}
			}
			slices.Sort(expected)
			eventually(t, what, expected, func() []string { return policyFindings(examine(t, p.Kubeconfig(token), nil)) })
		}
	}
	until("no policy", "attachments-open", "attachment-drivers-open")
	config := func(csiDriver string) {
		p.ConfigMap("flex2csi", "flex2csi-config", map[string]string{"config.yaml": "drivers:\n- flexDriver: a/b\n  csiDriver: " + csiDriver + "\n"})
	}
	config(driver)
	p.Apply(install + "policy/attachments.yaml")
	until("the policies")
	config("other.csi.example.com")
	until("another configuration", "attachment-denied")
	config(driver)
	until("the configuration again")
	binding := func(name, change string) {
		t.Helper()
		_, err := p.Admin().AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Patch(t.Context(), name, types.MergePatchType, []byte(`{"spec":`+change+`}`), metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	binding("flex2csi-attachment-drivers", `{"paramRef":{"name":"another","parameterNotFoundAction":"Deny"}}`)
	until("another parameter", "attachment-denied")
	binding("flex2csi-attachment-drivers", `{"paramRef":{"name":"another","parameterNotFoundAction":"Allow"}}`)
	until("no parameter", "attachment-drivers-open")
	binding("flex2csi-attachment-drivers", `{"paramRef":{"name":"flex2csi-config"},"validationActions":["Audit"]}`)
	until("drivers that are not denied", "attachment-drivers-open")
	binding("flex2csi-attachments", `{"validationActions":["Audit"]}`)
	until("attachments that are not denied", "attachments-open", "attachment-drivers-open")
}

// policyFindings are those of the check of policies that are no good news.
func policyFindings(r *doctor.Report) []string {
	found := []string{}
	for _, f := range r.Findings {
		if f.Check == "policies" && f.Severity != doctor.OK {
			found = append(found, string(f.ID)+" "+f.Subject)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// eventually looks until what is found is as expected: the API server watches policies.
func eventually(t *testing.T, what string, expected []string, look func() []string) {
	t.Helper()
	var found []string
	for stop := time.Now().Add(time.Minute); time.Now().Before(stop); time.Sleep(100 * time.Millisecond) {
		if found = look(); slices.Equal(found, expected) {
			return
		}
	}
	t.Errorf("%s: found %q, want %q", what, found, expected)
}
