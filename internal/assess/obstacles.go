package assess

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/flex2csi/flex2csi/internal/distribution"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// obstacles says what is in the way, of the cluster first.
func (r *Report) obstacles() {
	r.Obstacles = []obstacle{}
	for _, text := range r.Incomplete {
		r.Obstacles = append(r.Obstacles, obstacle{What: "not all was read: " + text, Do: "read it with other rights, or mend it; until then this report is incomplete"})
	}
	if r.FlexVolumes == 0 {
		return
	}
	for _, one := range r.Releases {
		m, _ := distribution.ParseMinor(one.Release)
		for _, c := range []distribution.ReleaseCapability{distribution.AdmissionPolicies(), distribution.Reconstruction(), distribution.StagingPath(), distribution.Eviction()} {
			if !m.Has(c) {
				r.Obstacles = append(r.Obstacles, lacks(one.Release, c))
			}
		}
		if !one.Tested {
			r.Obstacles = append(r.Obstacles, obstacle{What: "Kubernetes " + one.Release + " is not tested, only " + distribution.TestedText(), Do: "try one volume first; docs/migrate-guide.md"})
		}
	}
	attaches := func(d driverItems) bool {
		return slices.ContainsFunc(d.Presets, func(f fit) bool { return f.attaches })
	}
	if names := r.attachThemselves; len(names) > 0 && slices.ContainsFunc(r.Drivers, attaches) {
		r.Obstacles = append(r.Obstacles, obstacle{
			What: fmt.Sprintf("the kubelets of %d nodes, such as %s, attach by themselves (no annotation %s), which they do not do for CSI drivers", len(names), names[0], objects.ControllerAttaches),
			Do:   "set enableControllerAttachDetach: true in the kubelet's configuration, or use a CSI driver that attaches on the node, with attachRequired: false in its CSIDriver object (docs/install.md#the-vendors-driver-on-the-nodes)",
		})
	}
	for i := range r.Drivers {
		r.Obstacles = append(r.Obstacles, r.Drivers[i].obstacles()...)
	}
}

// attachThemselves are the nodes of kubelets that attach by themselves.
func attachThemselves(nodes []*corev1.Node) (names []string) {
	for _, n := range nodes {
		if objects.AttachesItself(n) {
			names = append(names, n.Name)
		}
	}
	return names
}

func lacks(minor string, c distribution.ReleaseCapability) obstacle {
	do := "see docs/limits.md#kubernetes"
	if c.Name == distribution.Reconstruction().Name {
		do = "no migration is live: restart each pod once more, with --rolling or --offline (docs/migrate-guide.md)"
	}
	return obstacle{What: fmt.Sprintf("Kubernetes %s lacks %s: %s", minor, c.Name, c.Without), Do: do + ", or upgrade to " + c.Since.String() + " or later"}
}

func (d *driverItems) obstacles() (all []obstacle) {
	in := func(what, do string) { all = append(all, obstacle{d.FlexDriver, what, do}) }
	if d.Known != "" {
		in("no preset: "+d.Known, "see docs/presets.md#drivers-without-a-preset")
		return all
	}
	for _, reason := range slices.Sorted(maps.Keys(d.Refused)) {
		in(fmt.Sprintf("%s: %d", reason, d.Refused[reason]), "see docs/limits.md")
	}
	if d.without > 0 {
		do := "write a mapping; docs/mapping.md"
		if len(d.Similar) > 0 {
			do = "compare its options with preset " + strings.Join(d.Similar, ", ") + ", or " + do
		}
		in("no preset fits", do)
	}
	if len(d.Presets) > 1 {
		in("its volumes are of more than one CSI driver", "configure each of its presets, with this driver's name; docs/bridge-configuration.md#several-csi-drivers")
	}
	for _, f := range d.Presets {
		if f.FlexDriver != d.FlexDriver {
			in("preset "+f.Preset+" has another name of the driver, "+f.FlexDriver, "write this driver's name as flexDriver into the configuration")
		}
		switch {
		case f.Installed == nil:
			in("whether CSI driver "+f.CSIDriver+" is installed is not known: CSIDriver objects were not read", "kubectl get csidriver "+f.CSIDriver)
		case !*f.Installed:
			in("there is no CSIDriver object "+f.CSIDriver, "install the CSI driver as its vendor says")
		}
		if f.Needs != "nothing" {
			in("preset "+f.Preset+" needs "+f.Needs, "see flex2csi preset show "+f.Preset)
		}
		if f.Live != "yes" {
			in("live migration with preset "+f.Preset+": "+f.Live, "see flex2csi preset show "+f.Preset)
		}
	}
	if n := d.Counts[inlineVolume] + d.Counts[inlineTemplate] - d.refusedInline; n > 0 {
		in(fmt.Sprintf("inline volumes cannot migrate, in pods and templates: %d%s", n, d.example), "use a claim or a CSI volume in the template; flex2csi migrate plan prints it. Until then the bridge serves them with inline: true")
	}
	if n := d.Counts[ephemeralVolume] + d.Counts[storageClass] + d.Counts[pendingClaim] + d.Counts[claimTemplate]; n > 0 {
		in(fmt.Sprintf("StorageClasses, claims and templates make new FlexVolumes: %d", n), "flex2csi migrate classes prints CSI StorageClasses, and the commands")
	}
	return all
}

// The measured figures of docs/migrate-guide.md#figures: seconds for a volume, one by one.
const (
	minWithPods, maxWithPods = 15, 90
	withoutPods              = 1
)

// live reports whether the cluster can migrate a volume under a running pod, as far as is
// known.
func (r *Report) live() bool {
	return !slices.ContainsFunc(r.Releases, func(one clusterRelease) bool {
		m, ok := distribution.ParseMinor(one.Release)
		return ok && !m.Has(distribution.Reconstruction())
	})
}

// estimate is nil if no volume is ready.
func estimate(items []item, live bool) *timeEstimate {
	e := timeEstimate{Live: live}
	for _, i := range items {
		if i.Kind == persistentVolume && i.Result == ready {
			e.Volumes++
			if i.Pods > 0 {
				e.WithPods++
			}
		}
	}
	if e.Volumes == 0 {
		return nil
	}
	rest := (e.Volumes - e.WithPods) * withoutPods
	e.MinSeconds, e.MaxSeconds = rest+e.WithPods*minWithPods, rest+e.WithPods*maxWithPods
	return &e
}

// next are the next steps, from what is in the way to the plan.
func (r *Report) next() {
	r.Next = []nextStep{}
	step := func(do, command string) { r.Next = append(r.Next, nextStep{do, command}) }
	if r.FlexVolumes == 0 {
		if len(r.Incomplete) == 0 {
			step("nothing: there are no FlexVolumes", "")
		}
		return
	}
	var names, fill, missing []string
	other := false // drivers without a preset of which nothing is known
	for _, d := range r.Drivers {
		if d.Known != "" {
			step(d.FlexDriver+": "+d.Known, "")
		}
		other = other || d.Known == "" && d.without > 0
		for _, reason := range slices.Sorted(maps.Keys(d.Refused)) {
			step(d.FlexDriver+": "+reason, "")
		}
		for _, f := range d.Presets {
			if d.Known != "" || slices.Contains(names, f.Preset) {
				continue
			}
			names = append(names, f.Preset)
			for _, value := range f.FillIn {
				fill = append(fill, "--set "+value+"=VALUE")
			}
			if f.Installed == nil || !*f.Installed {
				missing = append(missing, f.CSIDriver)
			}
		}
	}
	if len(missing) > 0 {
		step("install the CSI drivers that are missing, and look for them", "kubectl get csidriver "+strings.Join(missing, " "))
	}
	if len(names) > 0 {
		fill = slices.Compact(slices.Sorted(slices.Values(fill)))
		step("write the configuration, and check it", strings.Join(slices.Concat([]string{"flex2csi preset show"}, fill, names, []string{">config.yaml && flex2csi check --config config.yaml"}), " "))
		if !r.configured && slices.ContainsFunc(r.Items, func(i item) bool { return i.isInline() }) {
			step("see which pods the installation refuses for their inline volumes", "flex2csi assess --config config.yaml")
		}
		step("compare what the CSI driver would be asked with the storage system", "kubectl get pv,csidriver -o yaml | flex2csi map --in-cluster --config config.yaml -f -")
		step("install the bridge as docs/install.md says; then plan the migration", "flex2csi migrate plan --all")
		return
	}
	if other {
		step("write a mapping, as docs/mapping.md says: no preset is for these drivers, but one may be similar", "flex2csi preset list")
	}
}
