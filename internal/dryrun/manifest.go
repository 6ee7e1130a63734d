package dryrun

import (
	"errors"
	"fmt"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/flex2csi/flex2csi/internal/csivol"
)

// manifests are what kubectl get -o yaml prints: PersistentVolumes and Pods with
// FlexVolumes, and the claims, Secrets and CSIDrivers that matter to them. All else is
// passed over.
type manifests struct {
	callouts  []*FlexVolume
	pvs, pods []object

	pvByName, pvByClaim map[string]object // a claim is namespace/name
	claims, claimOf     map[string]object // by namespace/name; by PersistentVolume
	secrets             map[string]object
	drivers             map[string]csivol.DriverInfo
}

func newManifests() *manifests {
	return &manifests{
		pvByName: map[string]object{}, pvByClaim: map[string]object{}, claims: map[string]object{}, claimOf: map[string]object{},
		secrets: map[string]object{}, drivers: map[string]csivol.DriverInfo{},
	}
}

func (m *manifests) add(o object) {
	switch o.text("kind") {
	case "PersistentVolume":
		m.addPV(o.slim(o.at("spec").Node))
	case "PersistentVolumeClaim":
		o = o.slim(o.at("spec").Only("volumeName", "resources"))
		m.claims[o.key()] = o
		if volume := o.text("spec", "volumeName"); volume != "" {
			m.claimOf[volume] = o
		}
	case "Pod":
		// Containers are the largest part of a pod.
		m.pods = append(m.pods, o.slim(o.at("spec").Only("volumes", "securityContext", "serviceAccountName")))
	case "Secret":
		m.secrets[o.key()] = o
	case "CSIDriver":
		m.drivers[o.name()] = driverInfo(o.at("spec"))
	case "List", "PersistentVolumeList", "PodList", "SecretList", "PersistentVolumeClaimList", "CSIDriverList":
		for _, item := range o.at("items").Items {
			m.add(object{item})
		}
	}
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
		m.pvByClaim[orDefault(ref.text("namespace"), "default")+"/"+ref.text("name")] = o
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
	for _, t := range spec.at("tokenRequests").Items {
		info.Tokens = append(info.Tokens, csivol.TokenRequest{Audience: object{t}.text("audience")})
	}
	return info
}

// input makes the volumes: those of pods as these use them, and all others as any pod
// would.
func (m *manifests) input() (*Input, error) {
	in := &Input{Volumes: m.callouts, CSIDrivers: m.drivers}
	used := map[string]*FlexVolume{}
	for _, pod := range m.pods {
		for _, item := range pod.at("spec", "volumes").Items {
			if v := m.ofPod(object{item}, pod, used); v != nil {
				in.Volumes = append(in.Volumes, v)
			}
		}
	}
	for _, pv := range m.pvs {
		if name := pv.name(); name == "" || used[name] == nil {
			in.Volumes = append(in.Volumes, m.ofPV(pv, object{}, false))
		}
	}
	if len(in.Volumes) == 0 {
		return nil, errors.New("there is no FlexVolume in it: want a PersistentVolume with spec.flexVolume, or a Pod with one, or a Pod with its PersistentVolumes")
	}
	return in, nil
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
		return orDefault(ref.text("namespace"), "default") + "/" + ref.text("name")
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
