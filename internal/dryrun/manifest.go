package dryrun

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/quantity"
	"github.com/flex2csi/flex2csi/internal/strict"
	"github.com/flex2csi/flex2csi/internal/strict/strictyaml"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// fromManifests returns the FlexVolumes in YAML or JSON manifests, such as
// kubectl get -o yaml prints: of PersistentVolumes, for the pods that use them
// if those are given, and of pods themselves. Claims and Secrets are looked up
// among the manifests. Everything else is passed over.
func fromManifests(data []byte) ([]*Volume, error) {
	docs, err := strictyaml.ParseAll(data)
	if err != nil {
		return nil, err
	}
	var m manifests
	for _, doc := range docs {
		if doc.Kind != strict.Object {
			return nil, fmt.Errorf("want a manifest, but got %s", kindOnly(doc))
		}
		m.add(object{doc})
	}
	return m.volumes()
}

// kindOnly leaves the text out, which may be anything.
func kindOnly(n strict.Node) string { return string(n.Kind) }

// object is a manifest, or a part of one. What is missing is empty. It is not an API type: a
// manifest may have any other fields. An error names the key and the kind of a value, never
// the value, which may be a secret.
type object struct{ strict.Node }

func (o object) at(path ...string) object {
	for _, key := range path {
		var found strict.Node
		for _, m := range o.Members {
			if m.Key == key {
				found = m.Value
			}
		}
		o = object{found}
	}
	return o
}

func (o object) text(path ...string) string { return o.at(path...).Text }
func (o object) truth(path ...string) bool  { return o.at(path...).Truth }
func (o object) there() bool                { return o.Kind != "" && o.Kind != strict.Null }

func (o object) texts(path ...string) (all []string) {
	for _, item := range o.at(path...).Items {
		all = append(all, item.Text)
	}
	return all
}

// name is namespace/name; the namespace is empty, or "default" by default.
func (o object) name() string { return o.text("metadata", "name") }

func (o object) namespace() string { return orDefault(o.text("metadata", "namespace"), "default") }

func orDefault(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

type manifests struct{ pvs, claims, pods, secrets, drivers []object }

func (m *manifests) add(o object) {
	switch o.text("kind") {
	case "PersistentVolume":
		m.pvs = append(m.pvs, o)
	case "PersistentVolumeClaim":
		m.claims = append(m.claims, o)
	case "Pod":
		m.pods = append(m.pods, o)
	case "Secret":
		m.secrets = append(m.secrets, o)
	case "CSIDriver":
		m.drivers = append(m.drivers, o)
	case "List", "PersistentVolumeList", "PodList", "SecretList", "PersistentVolumeClaimList", "CSIDriverList":
		for _, item := range o.at("items").Items {
			m.add(object{item})
		}
	}
}

func (m *manifests) volumes() ([]*Volume, error) {
	var volumes []*Volume
	used := map[string]bool{}
	for _, pod := range m.pods {
		ofPod, err := m.ofPod(pod, used)
		if err != nil {
			return nil, err
		}
		volumes = append(volumes, ofPod...)
	}
	for _, pv := range m.pvs {
		if used[pv.name()] || !pv.at("spec", "flexVolume").there() {
			continue
		}
		v, err := m.ofPV(pv, object{}, false)
		if err != nil {
			return nil, err
		}
		volumes = append(volumes, v)
	}
	if len(volumes) == 0 {
		return nil, errors.New("there is no FlexVolume in it: want a PersistentVolume with spec.flexVolume, or a Pod with one, or a Pod with its PersistentVolumes")
	}
	return volumes, nil
}

func (m *manifests) ofPod(pod object, used map[string]bool) ([]*Volume, error) {
	var volumes []*Volume
	for _, item := range pod.at("spec", "volumes").Items {
		volume := object{item}
		if volume.at("flexVolume").there() {
			v, err := m.inline(volume, pod)
			if err != nil {
				return nil, err
			}
			volumes = append(volumes, v)
		}
		if !volume.at("persistentVolumeClaim").there() {
			continue
		}
		pv := m.boundTo(pod.namespace(), volume.text("persistentVolumeClaim", "claimName"))
		if !pv.at("spec", "flexVolume").there() {
			continue
		}
		used[pv.name()] = true
		v, err := m.ofPV(pv, pod, volume.truth("persistentVolumeClaim", "readOnly"))
		if err != nil {
			return nil, err
		}
		volumes = append(volumes, v)
	}
	return volumes, nil
}

// boundTo finds the PersistentVolume of a claim, which both of them name.
func (m *manifests) boundTo(namespace, claim string) object {
	volumeName := ""
	for _, c := range m.claims {
		if c.namespace() == namespace && c.name() == claim {
			volumeName = c.text("spec", "volumeName")
		}
	}
	for _, pv := range m.pvs {
		ref := pv.at("spec", "claimRef")
		if volumeName != "" && pv.name() == volumeName || ref.text("name") == claim && ref.text("namespace") == namespace {
			return pv
		}
	}
	return object{}
}

// ofPV is a PersistentVolume as a pod uses it, or as any pod would.
func (m *manifests) ofPV(pv, pod object, readOnly bool) (*Volume, error) {
	spec := pv.at("spec")
	v, err := m.flexVolume(spec.at("flexVolume"), pod, "PersistentVolume "+pv.name())
	if err != nil {
		return nil, err
	}
	v.Options.VolumeName, v.Options.ReadOnly = pv.name(), readOnly
	v.accessModes = spec.texts("accessModes")
	if spec.truth("flexVolume", "readOnly") && !readOnly {
		v.note("spec.flexVolume.readOnly of a PersistentVolume has no effect: the kubelet passes what the pod's claim says")
	}
	if len(spec.texts("mountOptions")) > 0 {
		v.note("the kubelet refuses to mount a FlexVolume if its PersistentVolume has mountOptions; set the option mountOptions instead")
	}
	if spec.text("volumeMode") == "Block" {
		v.note("the kubelet cannot give a FlexVolume to a pod as a block device")
	}
	if size := spec.text("capacity", "storage"); size != "" {
		if v.OldSize, err = quantity.Parse(size); err != nil {
			return nil, fmt.Errorf("%s: spec.capacity.storage: %w", v.From, err)
		}
		v.NewSize = v.OldSize
		for _, c := range m.claims {
			if c.text("spec", "volumeName") == pv.name() {
				v.NewSize = larger(v.NewSize, c.text("spec", "resources", "requests", "storage"))
			}
		}
		if v.NewSize == v.OldSize {
			v.note("the expansion is shown with the capacity that the volume has")
		}
	}
	return v, nil
}

func larger(size int64, other string) int64 {
	if n, err := quantity.Parse(other); err == nil && n > size {
		return n
	}
	return size
}

func (m *manifests) inline(volume, pod object) (*Volume, error) {
	name := volume.text("name")
	v, err := m.flexVolume(volume.at("flexVolume"), pod, fmt.Sprintf("volume %s of pod %s", name, pod.name()))
	if err != nil {
		return nil, err
	}
	v.inline = true
	v.Options.VolumeName, v.Options.ReadOnly = name, volume.truth("flexVolume", "readOnly")
	v.note("the volume is inline: every user who may create pods chooses its options")
	return v, nil
}

func (v *Volume) note(text string) { v.Notes = append(v.Notes, text) }

// flexVolume is what inline volumes and PersistentVolumes have in common.
func (m *manifests) flexVolume(source, pod object, from string) (*Volume, error) {
	v := &Volume{From: from, FlexDriver: source.text("driver"), drivers: m.infos()}
	o := &v.Options
	o.FSType = source.text("fsType")
	for _, option := range source.at("options").Members {
		if option.Value.Kind != strict.String {
			return nil, fmt.Errorf("%s: option %q is %s: want a string", from, option.Key, option.Value.Describe())
		}
		if o.User == nil {
			o.User = map[string]string{}
		}
		o.User[option.Key] = option.Value.Text
	}
	o.PodName, o.PodNamespace = unknownPod, unknownNamespace
	o.PodUID, o.ServiceAccountName = unknownPodUID, "default"
	if pod.there() {
		o.PodName, o.PodNamespace = pod.name(), pod.namespace()
		o.PodUID = orDefault(pod.text("metadata", "uid"), unknownPodUID)
		o.ServiceAccountName = orDefault(pod.text("spec", "serviceAccountName"), "default")
		if group := pod.text("spec", "securityContext", "fsGroup"); group != "" {
			gid, err := strconv.ParseInt(group, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("pod %s: spec.securityContext.fsGroup is no number", pod.name())
			}
			o.FSGroup = &gid
		}
	}
	if ref := source.at("secretRef"); ref.there() {
		return v, m.secret(v, orDefault(ref.text("namespace"), o.PodNamespace), ref.text("name"))
	}
	return v, nil
}

// infos are what CSIDriver objects say; where one is silent, the defaults of the
// API.
func (m *manifests) infos() map[string]csivol.DriverInfo {
	infos := map[string]csivol.DriverInfo{}
	for _, d := range m.drivers {
		spec := d.at("spec")
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
		infos[d.name()] = info
	}
	return infos
}

// secret fills in the Secret, if it is among the manifests.
func (m *manifests) secret(v *Volume, namespace, name string) error {
	for _, s := range m.secrets {
		if s.name() != name || s.namespace() != namespace {
			continue
		}
		if got := s.text("type"); got != v.FlexDriver {
			v.note(fmt.Sprintf("the kubelet refuses Secret %s/%s: its type must be %s", namespace, name, v.FlexDriver))
		}
		return decodeSecret(v, s)
	}
	v.unknownSecret = true
	return nil
}

func decodeSecret(v *Volume, s object) error {
	v.Options.Secrets = map[string]flex.Secret{}
	for _, m := range s.at("data").Members {
		value, err := base64.StdEncoding.DecodeString(strings.TrimSpace(m.Value.Text))
		if err != nil {
			return fmt.Errorf("secret %s: the value of %q is no base64", s.name(), m.Key)
		}
		v.Options.Secrets[m.Key] = flex.NewSecret(value)
	}
	for _, m := range s.at("stringData").Members {
		v.Options.Secrets[m.Key] = flex.NewSecret([]byte(m.Value.Text))
	}
	return nil
}
