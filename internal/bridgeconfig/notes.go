package bridgeconfig

import (
	"maps"
	"slices"
	"strings"

	"github.com/flex2csi/flex2csi/internal/strict"
)

// Notes are things that are no faults and that who wrote the configuration
// should know. With access to the API server some of them do not matter.
func (c *Configuration) Notes(inCluster bool) []strict.Fault {
	var r strict.Report
	for i := range c.Drivers {
		d, at := &c.Drivers[i], Path(i)
		if !inCluster && !d.Inline && d.PVNamePattern == "" {
			r.Fault(at+".inline", "false, which only a daemon with access to the API server can enforce: those of install/ and of the chart have it. Elsewhere start flex2csi serve with --kubeconfig, or set pvNamePattern if PersistentVolumes can be told by their names, or see to it that pods cannot use flexVolume (docs/bridge-configuration.md)")
		}
		if d.Inline {
			note := "true: everyone who may create pods can use every volume that the CSI driver can reach, those of PersistentVolumes of other namespaces as well"
			if files := d.Secrets.files(); len(files) > 0 {
				note += ", with the secrets in " + strings.Join(files, ", ")
			}
			r.Fault(at+".inline", "%s", note)
		}
		for _, field := range d.WantsCluster() {
			if inCluster {
				break
			}
			r.Fault(at+"."+field, "needs access to the API server, which the daemons of install/ and of the chart have; elsewhere flex2csi serve --kubeconfig")
		}
	}
	return r.Faults
}

// AsksCSIDriver reports whether the configuration leaves something to the
// CSIDriver object.
func (d *Driver) AsksCSIDriver() bool {
	return d.Attach == AttachAuto || d.PodInfo == nil || d.RequiresRepublish == nil || d.FSGroup == "" || d.ServiceAccountTokens
}

// WantsCluster are the fields that mean nothing without access to the API
// server, with their paths.
func (c *Configuration) WantsCluster() (fields []string) {
	for i := range c.Drivers {
		for _, field := range c.Drivers[i].WantsCluster() {
			fields = append(fields, Path(i)+"."+field)
		}
	}
	return fields
}

// WantsCluster are the fields that mean nothing without access to the API server.
func (d *Driver) WantsCluster() (fields []string) {
	if d.Attach == AttachVA {
		fields = append(fields, "attach")
	}
	if d.ServiceAccountTokens {
		fields = append(fields, "serviceAccountTokens")
	}
	all := d.Secrets.All()
	for _, stage := range slices.Sorted(maps.Keys(all)) {
		if all[stage].SecretRef != nil {
			fields = append(fields, "secrets."+stage+".secretRef")
		}
	}
	return fields
}
