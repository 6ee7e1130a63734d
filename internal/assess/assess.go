package assess

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/distribution"
	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// Assess makes the report.
func Assess(in *Input, made time.Time) (*Report, error) {
	all, err := bridgeconfig.Presets()
	if err != nil {
		return nil, err
	}
	a := &assessment{
		Input: in, presets: all, drivers: map[string]*driverItems{}, pods: podsByClaim(in.Pods),
		report: &Report{APIVersion: "flex2csi.io/v1alpha1", Kind: "Assessment", Made: made.UTC(), Source: in.Source, Items: []item{}, Incomplete: slices.Concat(in.Unread, in.found.Unclear())},
	}
	a.classes = objects.FindFlexClasses(in.StorageClasses, in.PersistentVolumes, in.CSIDrivers)
	a.persistentVolumes()
	a.inPods()
	a.inObjects()
	a.makers()
	a.storageClasses()
	a.pendingClaims()
	r := a.report
	slices.SortStableFunc(r.Items, func(x, y item) int {
		return cmp.Or(slices.Index(kinds(), x.Kind)-slices.Index(kinds(), y.Kind), strings.Compare(x.Namespace, y.Namespace), strings.Compare(x.Name, y.Name))
	})
	r.FlexVolumes = len(r.Items)
	r.Releases = releases(in)
	r.Drivers = []driverItems{}
	for _, name := range slices.Sorted(maps.Keys(a.drivers)) {
		r.Drivers = append(r.Drivers, *a.drivers[name])
	}
	r.attachThemselves, r.configured = attachThemselves(in.Nodes), in.Configuration != ""
	r.obstacles()
	r.Estimate = estimate(r.Items, r.live())
	r.next()
	return r, nil
}

type assessment struct {
	*Input
	presets presets
	classes *objects.FlexClasses
	pods    map[string][]*corev1.Pod // by namespace/name of the claim
	drivers map[string]*driverItems
	report  *Report
}

// podsByClaim are the pods that are not finished.
func podsByClaim(pods []*corev1.Pod) map[string][]*corev1.Pod {
	all := map[string][]*corev1.Pod{}
	for _, p := range pods {
		if objects.PodFinished(p) {
			continue
		}
		for _, v := range p.Spec.Volumes {
			if name := objects.ClaimName(p.Name, &v); name != "" {
				key := p.Namespace + "/" + name
				all[key] = append(all[key], p)
			}
		}
	}
	return all
}

// add adds an item, and counts it for its driver.
func (a *assessment) add(i item) {
	d := a.drivers[i.FlexDriver]
	if d == nil {
		d = &driverItems{FlexDriver: i.FlexDriver, Counts: map[itemKind]int{}, Known: known(i.FlexDriver), Refused: map[string]int{}}
		a.drivers[i.FlexDriver] = d
	}
	d.Counts[i.Kind]++
	if i.Path != "" && d.example == "" {
		d.example = ", such as " + strings.TrimPrefix(i.Namespace+"/"+i.Name, "/") + " at " + i.Path + " (-o wide lists all)"
	}
	p, fits := a.presets.fit(i.FlexDriver, i.fsType)
	i.Result = result(i.Kind, d.Known, installed(p, a.CSIDrivers), fits)
	i.Reason = cmp.Or(i.Reason, objects.Unsupported(i.FlexDriver, i.windows))
	i.RefusedByPolicy = i.isInline() && bridgeconfig.DeniesInline(a.Configuration, i.FlexDriver)
	switch {
	case i.Reason != "":
		d.Refused[i.Reason]++
		if i.isInline() {
			d.refusedInline++
		}
		i.Result = unsupported
	case !fits:
		d.Similar = a.presets.similar(i.FlexDriver)
		d.without++
	default:
		i.Preset, i.CSIDriver = p.Name, p.CSIDriver
		d.fits(p, a.Input)
	}
	a.report.Items = append(a.report.Items, i)
}

func (i *item) isInline() bool { return i.Kind == inlineVolume || i.Kind == inlineTemplate }

func (d *driverItems) fits(p bridgeconfig.Preset, in *Input) {
	i := slices.IndexFunc(d.Presets, func(f fit) bool { return f.Preset == p.Name })
	if i < 0 {
		i = len(d.Presets)
		f := fit{Preset: p.Name, FlexDriver: p.FlexDriver, CSIDriver: p.CSIDriver, Installed: installed(p, in.CSIDrivers), Live: p.Live, Needs: p.Needs}
		f.attaches = strings.Contains(p.Needs, "to attach") && !slices.ContainsFunc(in.attachless, func(name string) bool { return isDriver(p, name) })
		for _, o := range p.Open {
			f.FillIn = append(f.FillIn, o.Name)
		}
		d.Presets = append(d.Presets, f)
	}
	d.Presets[i].Items++
}

func result(kind itemKind, known string, installed *bool, fits bool) itemResult {
	switch {
	case known != "":
		return unsupported
	case kind == inlineVolume || kind == inlineTemplate:
		return rewrite
	case kind != persistentVolume:
		return replaceClass
	case !fits:
		return writeMapping
	case installed == nil:
		return checkCSIDriver
	case !*installed:
		return installCSIDriver
	}
	return ready
}

func (a *assessment) persistentVolumes() {
	for _, pv := range a.PersistentVolumes {
		if pv.Annotations[migrate.FlexDriverAnnotation] != "" && pv.Spec.CSI != nil {
			a.report.Migrated++
		}
		source := pv.Spec.FlexVolume
		if source == nil {
			continue
		}
		i := item{Kind: persistentVolume, Name: pv.Name, FlexDriver: source.Driver, StorageClass: objects.VolumeClass(pv), fsType: source.FSType}
		i.Reason = objects.RefusedVolume(len(pv.Spec.MountOptions) > 0, ptr.Deref(pv.Spec.VolumeMode, ""))
		if ref := pv.Spec.ClaimRef; ref != nil {
			i.Namespace, i.Claim = ref.Namespace, ref.Name
			pods := a.pods[ref.Namespace+"/"+ref.Name]
			i.use(pods)
			i.windows = slices.ContainsFunc(pods, a.onWindows)
		}
		a.add(i)
	}
}

// onWindows reports whether a pod runs on Windows, as far as it or its node says so.
func (a *assessment) onWindows(p *corev1.Pod) bool {
	return objects.PodOnWindows(p) || slices.ContainsFunc(a.Nodes, func(n *corev1.Node) bool {
		return n.Name == p.Spec.NodeName && n.Status.NodeInfo.OperatingSystem == "windows"
	})
}

// use notes the pods that use an item, and their nodes.
func (i *item) use(pods []*corev1.Pod) {
	i.Pods = len(pods)
	for _, p := range pods {
		if node := p.Spec.NodeName; node != "" && !slices.Contains(i.Nodes, node) {
			i.Nodes = append(i.Nodes, node)
		}
	}
	slices.Sort(i.Nodes)
}

func (a *assessment) inPods() {
	for _, p := range a.Pods {
		for _, v := range objects.FlexVolumesInPod(p) {
			i := item{Kind: inlineVolume, Namespace: p.Namespace, Name: "Pod/" + p.Name + "/" + v.Name, FlexDriver: v.FlexVolume.Driver, fsType: v.FlexVolume.FSType, windows: a.onWindows(p)}
			i.use([]*corev1.Pod{p})
			a.add(i)
		}
		if !objects.PodFinished(p) {
			a.ephemeral(&p.Spec, item{Namespace: p.Namespace, Name: "Pod/" + p.Name + "/"}, p)
		}
	}
}

// inObjects are the FlexVolumes of objects that make pods, of any kind.
func (a *assessment) inObjects() {
	for _, u := range a.found.Uses() {
		name := strings.Join([]string{cmp.Or(u.Kind, "document"), cmp.Or(u.Name, "without a name"), cmp.Or(u.Volume, "without a name")}, "/")
		a.add(item{Kind: inlineTemplate, Namespace: u.Namespace, Name: name, FlexDriver: u.Driver, Path: u.Path, fsType: u.FSType(), windows: u.Windows})
	}
}

// makers are templates of which volumes are made.
func (a *assessment) makers() {
	for _, w := range a.Workloads {
		of := item{Namespace: w.Object.GetNamespace(), Name: w.Kind + "/" + w.Object.GetName() + "/"}
		a.ephemeral(w.Template, of)
		for _, claim := range w.ClaimTemplates {
			if class := a.classes.Of(&claim); class != nil {
				a.add(item{Kind: claimTemplate, Namespace: of.Namespace, Name: of.Name + claim.Name, FlexDriver: class.FlexDriver, StorageClass: class.Name})
			}
		}
	}
}

// ephemeral adds the generic ephemeral volumes of a pod's spec that become FlexVolumes.
func (a *assessment) ephemeral(spec *corev1.PodSpec, of item, pods ...*corev1.Pod) {
	for _, v := range spec.Volumes {
		if v.Ephemeral == nil || v.Ephemeral.VolumeClaimTemplate == nil {
			continue
		}
		if class := a.classes.Of(ephemeralClaim(&v)); class != nil {
			i := item{Kind: ephemeralVolume, Namespace: of.Namespace, Name: of.Name + v.Name, FlexDriver: class.FlexDriver, StorageClass: class.Name}
			i.use(pods)
			a.add(i)
		}
	}
}

func (a *assessment) storageClasses() {
	for _, c := range a.classes.All() {
		a.add(item{Kind: storageClass, Name: c.Name, FlexDriver: c.FlexDriver, StorageClass: c.Name})
	}
}

func (a *assessment) pendingClaims() {
	for _, c := range a.Input.pendingClaims() {
		if class := a.classes.Of(c); class != nil {
			i := item{Kind: pendingClaim, Namespace: c.Namespace, Name: c.Name, FlexDriver: class.FlexDriver, StorageClass: class.Name}
			i.use(a.pods[c.Namespace+"/"+c.Name])
			a.add(i)
		}
	}
}

// pendingClaims are those for which a volume is still to be made.
func (in *Input) pendingClaims() (all []*corev1.PersistentVolumeClaim) {
	bound := map[string]bool{}
	for _, pv := range in.PersistentVolumes {
		if ref := pv.Spec.ClaimRef; ref != nil {
			bound[ref.Namespace+"/"+ref.Name] = true
		}
	}
	for _, c := range in.Claims {
		isPending := c.Spec.VolumeName == "" && (c.Status.Phase == "" || c.Status.Phase == corev1.ClaimPending)
		if isPending && !bound[c.Namespace+"/"+c.Name] {
			all = append(all, c)
		}
	}
	return all
}

// ephemeralClaim is the claim of a generic ephemeral volume.
func ephemeralClaim(v *corev1.Volume) *corev1.PersistentVolumeClaim {
	template := v.Ephemeral.VolumeClaimTemplate
	return &corev1.PersistentVolumeClaim{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
}

// releases are those of the API server and the kubelets, oldest first.
func releases(in *Input) []clusterRelease {
	byMinor := map[distribution.Minor]*clusterRelease{}
	at := func(version string) *clusterRelease {
		m, ok := distribution.ParseMinor(version)
		if !ok {
			return &clusterRelease{}
		}
		if byMinor[m] == nil {
			byMinor[m] = &clusterRelease{Release: m.String(), Tested: slices.Contains(distribution.TestedMinors(), m)}
			for _, c := range distribution.ReleaseCapabilities() {
				if !m.Has(c) {
					byMinor[m].Lacks = append(byMinor[m].Lacks, fmt.Sprintf("%s (since %s): %s", c.Name, c.Since, c.Without))
				}
			}
		}
		return byMinor[m]
	}
	at(in.ServerVersion).Server = true
	for _, n := range in.Nodes {
		at(n.Status.NodeInfo.KubeletVersion).Nodes++
	}
	all := []clusterRelease{}
	for _, m := range slices.Sorted(maps.Keys(byMinor)) {
		all = append(all, *byMinor[m])
	}
	return all
}
