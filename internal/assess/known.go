package assess

import (
	"slices"
	"strings"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
)

// known are drivers without a preset of which more can be said. docs/presets.md has the reasons.
func known(driver string) string {
	const cce = "Huawei CCE has such volumes up to Kubernetes 1.15 only, where flex2csi cannot migrate; use the CSI PersistentVolumes of its documents"
	return map[string]string{
		"nodeagent/uds":       "Calico's socket for application layer policy, no storage; use an inline CSI volume of csi.tigera.io in the pods, then set flexVolumePath: None in the Installation of the operator",
		"ibm/ibmc-s3fs":       "IBM Cloud Object Storage; the bridge cannot serve its CSI driver: use IBM's converter, kubectl flex-to-csi, or make a Secret of the volume's Secret and options, and migrate offline",
		"huawei.com/fuxivol":  cce,
		"huawei.com/fuxinfs":  cce,
		"huawei.com/fuxiefs":  cce,
		"huawei.com/fuxiobs":  cce,
		"rancher.io/longhorn": "Longhorn; its documents use backup and restore",
		"azure/kv":            "it mounts secrets; use the Secrets Store CSI driver, which has other objects for that",
		"azure/dysk":          "a preview; no CSI driver for such disks is known",
		"alicloud/cpfs":       "Alibaba's CSI driver has dropped CPFS of that kind",
	}[driver]
}

// presets are those of the program.
type presets []bridgeconfig.Preset

// fit returns the preset for a volume. One FlexVolume driver of Rook, which has the name of
// its operator's namespace, mounts CephFS and RBD (fsType).
func (all presets) fit(driver, fsType string) (bridgeconfig.Preset, bool) {
	vendor, _, _ := strings.Cut(driver, "/")
	name := ""
	switch {
	case isRook(vendor) && fsType == "ceph":
		name = "rook-cephfs"
	case isRook(vendor):
		name = "rook-rbd"
	case driver == "dev.hpe.com/nimble", driver == "dory/nimble":
		name = "hpe-nimble"
	case driver == "dev.hpe.com/hpe":
		name = "hpe-3par"
	}
	i := slices.IndexFunc(all, func(p bridgeconfig.Preset) bool { return p.Name == name || name == "" && p.FlexDriver == driver })
	if i < 0 {
		return bridgeconfig.Preset{}, false
	}
	return all[i], true
}

func isRook(vendor string) bool { return vendor == "ceph.rook.io" || vendor == "rook.io" }

// similar are presets for a driver of the same name. Only for the scripts and examples that
// people install under a vendor of their own: the name disk says nothing.
func (all presets) similar(driver string) (names []string) {
	_, name, _ := strings.Cut(driver, "/")
	if !slices.Contains([]string{"cifs", "lvm", "nfs"}, name) {
		return nil
	}
	for _, p := range all {
		if _, other, _ := strings.Cut(p.FlexDriver, "/"); other == name {
			names = append(names, p.Name)
		}
	}
	return names
}

// installed reports whether a preset's CSI driver has a CSIDriver object; nil: not known.
func installed(p bridgeconfig.Preset, csiDrivers []string) *bool {
	if csiDrivers == nil {
		return nil
	}
	is := slices.ContainsFunc(csiDrivers, func(name string) bool { return isDriver(p, name) })
	return &is
}

// isDriver reports whether a CSI driver of this name is a preset's. Rook's have the namespace
// of the operator in front.
func isDriver(p bridgeconfig.Preset, name string) bool {
	_, suffix, _ := strings.Cut(p.CSIDriver, ".")
	vendor, _, _ := strings.Cut(p.FlexDriver, "/")
	return name == p.CSIDriver || isRook(vendor) && strings.HasSuffix(name, "."+suffix)
}
