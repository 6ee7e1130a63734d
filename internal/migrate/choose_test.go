package migrate_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
)

const twoDrivers = `{"apiVersion":"flex2csi.io/v1alpha1","kind":"BridgeConfiguration","drivers":[
	{"flexDriver":"example.com/disk","csiDriver":"disk.csi.example.com","when":"fsType == 'ext4'"},
	{"flexDriver":"example.com/disk","csiDriver":"share.csi.example.com","when":"fsType in ['ceph', 'odd']"},
	{"flexDriver":"example.com/old","csiDriver":"share.csi.example.com"}]}`

// TestTwoCSIDrivers: each volume of a FlexVolume driver gets its own CSI driver. Two FlexVolume
// drivers may stand for one CSI driver: what would become one volume is seen.
func TestTwoCSIDrivers(t *testing.T) {
	all := shop(nil)
	for _, o := range []struct{ name, driver, fsType, handle string }{
		{"share", "example.com/disk", "ceph", "s"},
		{"none", "example.com/disk", "zfs", "n"},
		{"same", "example.com/disk", "odd", "twice"},
		{"also", "example.com/old", "ext4", "twice"},
	} {
		pv := all[0].DeepCopyObject().(*corev1.PersistentVolume)
		pv.Name, pv.UID, pv.Spec.ClaimRef = o.name, "", nil
		pv.Spec.FlexVolume.Driver, pv.Spec.FlexVolume.FSType, pv.Spec.FlexVolume.Options["volumeID"] = o.driver, o.fsType, o.handle
		all = append(all, pv)
	}
	j := &journey{t: t, api: newAPI(t, all...), mode: journal.Live, config: twoDrivers}
	plan, err := j.runner().Planner.Plan(t.Context(), &migrate.Selection{All: true})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"pv1": "disk.csi.example.com vol-1", "share": "share.csi.example.com s", "none": " ", "same": "share.csi.example.com twice", "also": "share.csi.example.com twice"}
	fails := map[string]string{
		"none": `choose a CSI driver for volume "none" of driver example.com/disk: no when of the configuration is true for it`,
		"same": "PersistentVolume also would become the same volume", "also": "PersistentVolume same would become the same volume",
	}
	for _, v := range plan.Volumes {
		if got := v.CSIDriver + " " + v.Handle; got != want[v.Name] {
			t.Errorf("%s becomes %q, want %q", v.Name, got, want[v.Name])
		}
		says := slices.ContainsFunc(v.Checks, func(c migrate.Check) bool {
			return c.Status == migrate.Fails && strings.Contains(c.Evidence, fails[v.Name])
		})
		if fails[v.Name] != "" && !says {
			t.Errorf("%s: want %q of\n%+v", v.Name, fails[v.Name], v.Checks)
		}
	}
	if len(plan.Volumes) != len(want) {
		t.Errorf("%d volumes, want %d", len(plan.Volumes), len(want))
	}
}
