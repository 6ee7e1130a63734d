package assess

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/internal/strict"
)

// manifests are what kubectl get -o yaml prints: PersistentVolumes, Pods and objects of other
// kinds with FlexVolumes, and the claims, Secrets and CSIDrivers that matter to them.
type manifests struct {
	found     objects.FlexFinder
	counts    map[string]int // of objects, by kind
	foreign   []string       // documents that are no objects
	pvs, pods []object

	pvByName, pvByClaim map[string]object // a claim is namespace/name
	claims, claimOf     map[string]object // by namespace/name; by PersistentVolume
	secrets             map[string]object
	drivers             map[string]csivol.DriverInfo
}

func newManifests() *manifests {
	return &manifests{
		found: objects.FlexFinder{Manifests: true}, counts: map[string]int{},
		pvByName: map[string]object{}, pvByClaim: map[string]object{}, claims: map[string]object{}, claimOf: map[string]object{},
		secrets: map[string]object{}, drivers: map[string]csivol.DriverInfo{},
	}
}

func (m *manifests) add(o object) {
	m.counts[o.text("kind")]++
	switch kind := o.text("kind"); kind {
	case "PersistentVolume":
		m.addPV(o.slim(o.at("spec")))
	case "PersistentVolumeClaim":
		o = o.slim(o.at("spec").only("volumeName", "resources"))
		m.claims[o.key()] = o
		if volume := o.text("spec", "volumeName"); volume != "" {
			m.claimOf[volume] = o
		}
	case "Pod":
		// Containers are the largest part of a pod.
		pod := o.slim(o.at("spec").only("volumes", "securityContext", "serviceAccountName", "nodeSelector", "os", "affinity"))
		m.pods = append(m.pods, pod)
	case "Secret":
		m.secrets[o.key()] = o
	case "CSIDriver":
		m.drivers[o.name()] = driverInfo(o.at("spec"))
	case "Status":
		m.foreign = append(m.foreign, "an answer of the API server: "+strict.Clip(o.text("message")))
	default:
		if strings.HasSuffix(kind, "List") && o.at("items").kind() == strict.Array {
			for _, item := range o.items("items") {
				m.add(item)
			}
			return
		}
		m.addOther(o)
	}
}

// addOther takes an object that may make pods. One of no kind is foreign, unless it has
// FlexVolumes, as the values of a chart may.
func (m *manifests) addOther(o object) {
	value, _ := o.value().(map[string]any)
	if len(value) == 0 { // the head of a list
		return
	}
	if o.text("kind") == "" && !objects.UsesFlexVolume(value) {
		keys := strings.Join(slices.Sorted(maps.Keys(value)), ", ")
		m.foreign = append(m.foreign, "a document with the keys "+strict.Clip(keys)+": "+strict.Clip(o.text("error")))
		return
	}
	m.found.Add(value)
}

func (m *manifests) addPV(o object) {
	name := o.name()
	if _, twice := m.pvByName[name]; twice || !o.at("spec", "flexVolume").there() {
		return
	}
	m.pvs = append(m.pvs, o)
	if name != "" {
		m.pvByName[name] = o
	}
	if ref := o.at("spec", "claimRef"); ref.there() {
		m.pvByClaim[cmp.Or(ref.text("namespace"), "default")+"/"+ref.text("name")] = o
	}
}

// driverInfo is what a CSIDriver object says; where it is silent, the defaults of the
// API.
func driverInfo(spec object) csivol.DriverInfo {
	info := csivol.DriverInfo{
		AttachRequired:    !spec.at("attachRequired").there() || spec.truth("attachRequired"),
		PodInfoOnMount:    spec.truth("podInfoOnMount"),
		RequiresRepublish: spec.truth("requiresRepublish"),
		FSGroupPolicy:     storagev1.FSGroupPolicy(spec.text("fsGroupPolicy")),
		TokensInSecrets:   spec.truth("serviceAccountTokenInSecrets"),
	}
	for _, t := range spec.items("tokenRequests") {
		info.Tokens = append(info.Tokens, csivol.TokenRequest{Audience: t.text("audience")})
	}
	return info
}

// input makes the volumes: those of pods as these use them, and all others as any pod
// would.
func (m *manifests) input() (*MapInput, error) {
	in := &MapInput{CSIDrivers: m.drivers, Unclear: m.found.Unclear()}
	if len(m.foreign) > 0 {
		in.Unclear = append(in.Unclear, fmt.Sprintf("no objects of Kubernetes: %s", strings.Join(m.foreign, "; ")))
	}
	used := map[string]*FlexVolume{}
	for _, pod := range m.pods {
		onWindows := objects.RunsOnWindows(pod.at("spec").value())
		for _, item := range pod.items("spec", "volumes") {
			if v := m.ofPod(item, pod, used); v != nil {
				v.refuse(objects.Unsupported(v.FlexDriver, onWindows))
				in.Volumes = append(in.Volumes, v)
			}
		}
	}
	for _, pv := range m.pvs {
		if name := pv.name(); name == "" || used[name] == nil {
			in.Volumes = append(in.Volumes, m.ofPV(pv, object{}, false))
		}
	}
	for _, use := range m.found.Uses() {
		in.Volumes = append(in.Volumes, m.template(&use))
	}
	if len(in.Volumes) == 0 {
		return nil, fmt.Errorf("there is no FlexVolume in it: want a PersistentVolume with spec.flexVolume, or a Pod with one, or a Pod with its PersistentVolumes; there is %s", m.inventory())
	}
	return in, nil
}

// inventory says what was read.
func (m *manifests) inventory() string {
	all := slices.Clone(m.foreign)
	for _, kind := range slices.Sorted(maps.Keys(m.counts)) {
		if kind != "" && kind != "Status" && !strings.HasSuffix(kind, "List") {
			all = append(all, fmt.Sprintf("%d %s", m.counts[kind], kind))
		}
	}
	return cmp.Or(strings.Join(slices.Concat(all, m.found.Unclear()), ", "), "nothing")
}

// template is a volume of an object that makes pods, or PersistentVolumes.
func (m *manifests) template(use *objects.FlexUse) *FlexVolume {
	volume := objectOf(map[string]any{"name": cmp.Or(use.Volume, unknownVolume), "flexVolume": use.Source})
	v := m.inline(volume, object{})
	v.From = use.Names() + ", " + use.Path
	v.template = strings.TrimPrefix(use.Namespace+"/"+use.Kind+"/"+use.Name, "/")
	v.refuse(objects.Unsupported(use.Driver, use.Windows))
	return v
}

// ofPod returns a FlexVolume of a pod, or nil. A PersistentVolume that several pods use is
// returned once.
func (m *manifests) ofPod(volume, pod object, used map[string]*FlexVolume) *FlexVolume {
	if volume.at("flexVolume").there() {
		return m.inline(volume, pod)
	}
	claim := pod.namespace() + "/" + volume.text("persistentVolumeClaim", "claimName")
	pv, ok := m.pvByName[m.claims[claim].text("spec", "volumeName")]
	if !ok {
		pv, ok = m.pvByClaim[claim]
	}
	if !ok {
		return nil
	}
	if v := used[pv.name()]; v != nil {
		v.note(fmt.Sprintf("shown for pod %s; pod %s uses it as well", v.Pod, pod.key()))
		return nil
	}
	v := m.ofPV(pv, pod, volume.truth("persistentVolumeClaim", "readOnly"))
	used[pv.name()] = v
	return v
}

// claimOfPV is namespace/name, or empty.
func (m *manifests) claimOfPV(pv object) string {
	if ref := pv.at("spec", "claimRef"); ref.there() {
		return cmp.Or(ref.text("namespace"), "default") + "/" + ref.text("name")
	}
	if c, ok := m.claimOf[pv.name()]; ok {
		return c.key()
	}
	return ""
}

// requested is the size that the claim of a PersistentVolume asks for, or empty.
func (m *manifests) requested(pv string) string {
	return m.claimOf[pv].text("spec", "resources", "requests", "storage")
}
