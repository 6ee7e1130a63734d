package assess_test

import (
	"strings"
	"testing"

	"github.com/flex2csi/flex2csi/internal/assess"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// TestClassCases: what migrate classes said of inputs of public bug reports (internal/migrate has
// the inputs). CSI's provisioner refuses a claim with a selector
// (kubernetes-csi/external-provisioner#574); the class in place of one that was marked as the
// default, and was not it, became the default (kubermatic/kubeone PR 1853); a class in the
// annotation was not seen (rook/rook#756).
func TestClassCases(t *testing.T) {
	const (
		selector     = "      selector:\n        matchLabels:\n          failure-domain.beta.kubernetes.io/zone: AD-1\n"
		claim        = "  selector:\n    matchLabels:\n      failure-domain.beta.kubernetes.io/zone: AD-1\n"
		bothRefuse   = "blocked: PersistentVolumeClaim shop/waiting has spec.selector failure-domain.beta.kubernetes.io/zone=AD-1"
		templateOnly = "blocked: StatefulSet shop/db, claim template data has spec.selector"
		isDefault    = `storageclass.kubernetes.io/is-default-class: "true"`
	)
	for name, test := range map[string]struct {
		file        string
		edits       []string
		want, never []string
	}{
		"selector":         {"selector", nil, []string{"  blocked\n", bothRefuse, templateOnly}, []string{"ready", "kubectl -n shop patch"}},
		"of the claim":     {"selector", []string{selector, ""}, []string{"  blocked\n", bothRefuse, "statefulset db"}, []string{templateOnly, "persistentvolumeclaim waiting"}},
		"an expression":    {"selector", []string{selector, "      selector: {matchExpressions: [{key: zone, operator: In, values: [a, b]}]}\n"}, []string{"claim template data has spec.selector zone in (a,b)"}, nil},
		"ephemeral":        {"selector", []string{"", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: shop}\nspec: {template: {spec: {volumes: [{name: tmp, ephemeral: {volumeClaimTemplate: {spec: {storageClassName: flex, selector: {}, accessModes: [ReadWriteOnce]}}}}]}}}"}, []string{"blocked: Deployment shop/web, volume tmp has spec.selector"}, []string{"deployment web"}},
		"a snapshot":       {"selector", []string{selector, "      dataSource: {apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: monday}\n", claim, ""}, []string{"  to decide\n", "decide: see that CSI driver disk.csi.example.com makes a volume of VolumeSnapshot monday for StatefulSet shop/db, claim template data"}, []string{"blocked"}},
		"a populator":      {"selector", []string{selector, "      dataSourceRef: {apiGroup: hello.example.com, kind: Hello, name: world}\n", claim, ""}, []string{"makes a volume of Hello world for StatefulSet"}, []string{"blocked"}},
		"many nodes":       {"selector", []string{claim, "", selector, "", "  - ReadWriteOnce\n  resources:\n    requests:\n      storage: 1Gi", "  - ReadWriteMany\n  resources:\n    requests:\n      storage: 1Gi"}, []string{"decide: see that CSI driver disk.csi.example.com makes volumes with ReadWriteMany for PersistentVolumeClaim shop/waiting"}, []string{"blocked"}},
		"twodef":           {"twodef", nil, []string{"oci-csi"}, []string{isDefault}},
		"the newer one":    {"twodef", []string{"'2020-01-01T00:00:00Z'", "'2025-01-01T00:00:00Z'"}, []string{isDefault}, nil},
		"of one age":       {"twodef", []string{"'2020-01-01T00:00:00Z'", "'2024-05-01T00:00:00Z'"}, []string{isDefault}, nil}, // the first by name
		"beta, and CSI's":  {"twodef", []string{"storageclass.kubernetes.io", "storageclass.beta.kubernetes.io"}, []string{"oci-csi"}, []string{isDefault}},
		"the only default": {"twodef", []string{"  creationTimestamp: '2024-05-01T00:00:00Z'", "", "is-default-class: 'true'\n\nprovisioner: blockvolume", "is-default-class: 'false'\n\nprovisioner: blockvolume"}, []string{isDefault}, nil},
		"beta":             {"beta", nil, []string{"flex-csi   1   "}, nil},
		"pvann":            {"pvann", nil, []string{"flex-csi"}, nil},
		"mixed":            {"mixed", nil, []string{"flex-csi"}, nil},
		"rookclass":        {"rookclass", nil, []string{"rook-ceph-block-csi"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			text := testenv.Case(t, "../migrate/testdata/cases", test.file, test.edits...)
			in := read(t, text)
			table, manifests, _ := plan(t, in, assess.ClassOptions{Suffix: "-csi", Config: disk("{}")})
			got := table + manifests
			for _, want := range test.want {
				if !strings.Contains(strings.Join(strings.Fields(got), " "), strings.Join(strings.Fields(want), " ")) {
					t.Errorf("no %q in\n%s", want, got)
				}
			}
			for _, never := range test.never {
				if strings.Contains(got, never) {
					t.Errorf("%q in\n%s", never, got)
				}
			}
		})
	}
}
