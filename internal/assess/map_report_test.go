package assess_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flex2csi/flex2csi/internal/assess"
	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/mapping"
)

const many = `
kind: PersistentVolume
metadata: {name: pv1}
spec: {claimRef: {namespace: shop, name: data-1}, flexVolume: {driver: example.com/disk, options: {volumeID: vol-1}}}
---
kind: PersistentVolume
metadata: {name: pv2}
spec: {flexVolume: {driver: example.com/disk, options: {volumeID: vol-1}}}
---
kind: PersistentVolumeClaim
metadata: {name: data-2, namespace: shop}
spec: {volumeName: pv2}
---
kind: PersistentVolume
metadata: {name: pv3}
spec: {claimRef: {namespace: blog, name: data}, flexVolume: {driver: example.com/disk, options: {volumeID: 7}}}
---
kind: PersistentVolume
metadata: {name: pv4}
spec: {flexVolume: {driver: example.com/other}}
---
kind: PersistentVolume
metadata: {name: pv5}
spec: {claimRef: {namespace: shop, name: data-5}, flexVolume: {driver: example.com/disk, options: {volumeID: vol-5}}}
---
kind: Pod
metadata: {name: a, namespace: shop}
spec:
  volumes:
  - {name: five, persistentVolumeClaim: {claimName: data-5}}
  - {name: inline, flexVolume: {driver: example.com/disk, options: {volumeID: vol-6}}}
---
kind: Pod
metadata: {name: b, namespace: shop}
spec:
  volumes:
  - {name: five, persistentVolumeClaim: {claimName: data-5}}
  - {name: inline, flexVolume: {driver: example.com/disk, options: {volumeID: vol-6}}}
`

func reportOf(t *testing.T, node assess.Node, input string) (*assess.Planner, *assess.MapResult) {
	t.Helper()
	c, err := bridgeconfig.Loader{}.Decode([]byte("apiVersion: flex2csi.io/v1alpha1\nkind: BridgeConfiguration\ndrivers:\n- {flexDriver: example.com/disk, csiDriver: disk.csi.example.com, inline: true}\n"), mapping.Check)
	if err != nil {
		t.Fatal(err)
	}
	in, err := readVolumes(input)
	if err != nil {
		t.Fatal(err)
	}
	planner, err := assess.NewPlanner(c, node, in.CSIDrivers)
	if err != nil {
		t.Fatal(err)
	}
	return planner, planner.Report(in.Volumes)
}

// TestReport: each volume has its result, and none is in the way of the others.
func TestReport(t *testing.T) {
	planner, r := reportOf(t, assess.Node{Cluster: true}, many)
	got := map[string]assess.Result{}
	for _, p := range r.Plans {
		got[p.DisplayName()] = p.Result
		if detail := planner.Detail(p); detail.Result != p.Result || (p.Result == assess.OK) != (p.Reason == "") {
			t.Errorf("%s: %s: %s; in detail %s", p.Volume, p.Result, p.Reason, detail.Result)
		}
	}
	want := map[string]assess.Result{
		"pv1": assess.SameHandle, "pv2": assess.SameHandle, "pv3": assess.NotMapped, "pv4": assess.NoDriver,
		"pv5": assess.OK, "shop/a/inline": assess.OK, "shop/b/inline": assess.OK,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	wantSummary := &assess.Summary{
		Volumes: 7, Results: map[assess.Result]int{assess.OK: 3, assess.SameHandle: 2, assess.NotMapped: 1, assess.NoDriver: 1},
		Drivers: []assess.DriverCount{
			{FlexDriver: "example.com/disk", CSIDriver: "disk.csi.example.com", Volumes: 6, OK: 3},
			{FlexDriver: "example.com/other", Volumes: 1},
		},
		Namespaces: []assess.NamespaceCount{{Volumes: 1}, {Namespace: "blog", Volumes: 1}, {Namespace: "shop", Volumes: 5, OK: 3}},
	}
	if diff := cmp.Diff(wantSummary, r.Summary()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestReportSameHandle: both volumes name each other.
func TestReportSameHandle(t *testing.T) {
	_, r := reportOf(t, assess.Node{}, many)
	for _, p := range r.Plans {
		other, ok := map[string]string{"pv1": "pv2", "pv2": "pv1"}[p.Volume]
		if ok && !strings.HasPrefix(p.Reason, other+" has the handle vol-1 as well") {
			t.Errorf("%s: %s", p.Volume, p.Reason)
		}
	}
}

// TestReportCSIDriver: the report asks for a CSIDriver object only where it matters and is
// missing.
func TestReportCSIDriver(t *testing.T) {
	const object = "\n---\nkind: CSIDriver\nmetadata: {name: disk.csi.example.com}\nspec: {attachRequired: false}\n"
	tests := []struct {
		name, input string
		cluster     bool
		want        []string
		attached    string
	}{
		{"missing", many, true, []string{"disk.csi.example.com"}, "VolumeAttachment"},
		{"given", many + object, true, nil, ""},
		{"without access", many, false, nil, ""},
	}
	for _, tt := range tests {
		_, r := reportOf(t, assess.Node{Cluster: tt.cluster}, tt.input)
		r, err := r.Select([]string{"shop/data-5"})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, r.WithoutCSIDriver); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
		if len(r.Plans) != 1 || r.Plans[0].Attached != tt.attached {
			t.Errorf("%s: attached %+v", tt.name, r.Plans)
		}
	}
}
