package assess

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/flex2csi/flex2csi/internal/driverconfig"
	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/internal/strict"
	"github.com/flex2csi/flex2csi/internal/yamltext"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// ofPV is a PersistentVolume as a pod uses it, or as any pod would.
func (m *manifests) ofPV(pv, pod object, readOnly bool) *FlexVolume {
	spec := pv.at("spec")
	v := m.flexVolume(spec.at("flexVolume"), pod, "PersistentVolume "+pv.name())
	v.Claim = m.claimOfPV(pv)
	v.Options.VolumeName, v.Options.ReadOnly = pv.name(), readOnly
	v.accessModes = spec.texts("accessModes")
	if pv.name() == "" {
		v.fail("a PersistentVolume has no name: set metadata.name")
	}
	if spec.truth("flexVolume", "readOnly") && !readOnly {
		v.note("spec.flexVolume.readOnly of a PersistentVolume has no effect: the kubelet passes what the pod's claim says")
	}
	v.refuse(objects.RefusedVolume(len(spec.items("mountOptions")) > 0, corev1.PersistentVolumeMode(spec.text("volumeMode"))))
	if size := spec.text("capacity", "storage"); size != "" {
		var err error
		if v.OldSize, err = driverconfig.ParseQuantity(size); err != nil {
			v.fail("spec.capacity.storage: %v", err)
		}
		v.NewSize = larger(v.OldSize, m.requested(pv.name()))
		if v.NewSize == v.OldSize {
			v.note("the expansion is shown with the capacity that the volume has")
		}
	}
	return v
}

func larger(size int64, other string) int64 {
	if n, err := driverconfig.ParseQuantity(other); err == nil && n > size {
		return n
	}
	return size
}

func (m *manifests) inline(volume, pod object) *FlexVolume {
	name := volume.text("name")
	v := m.flexVolume(volume.at("flexVolume"), pod, fmt.Sprintf("volume %s of pod %s", name, pod.name()))
	v.inline = true
	v.Options.VolumeName, v.Options.ReadOnly = name, volume.truth("flexVolume", "readOnly")
	v.note("the volume is inline: every user who may create pods chooses its options")
	return v
}

func (v *FlexVolume) note(text string) { v.Notes = append(v.Notes, text) }

// refuse keeps the first reason why the volume works nowhere; empty: none.
func (v *FlexVolume) refuse(reason string) { v.refused = cmp.Or(v.refused, reason) }

// fail keeps the first error.
func (v *FlexVolume) fail(format string, args ...any) {
	if v.Err == nil {
		v.Err = fmt.Errorf(format, args...)
	}
}

// flexVolume is what inline volumes and PersistentVolumes have in common.
func (m *manifests) flexVolume(source, pod object, from string) *FlexVolume {
	v := &FlexVolume{From: from, FlexDriver: source.text("driver")}
	o := &v.Options
	o.FSType = source.text("fsType")
	v.refuse(objects.Unsupported(v.FlexDriver, false))
	if v.FlexDriver == "" {
		v.refused = ""
		v.fail("flexVolume.driver is missing: set it to the vendor/name of the FlexVolume driver")
	}
	for key, value := range yamltext.Members(source.at("options").Node) {
		if kind := yamltext.KindOf(value); kind != strict.String {
			v.fail("option %q is %s: want a string; put it in quotes", key, kind)
		}
		if o.User == nil {
			o.User = map[string]string{}
		}
		o.User[key] = value.Value
	}
	o.PodName, o.PodNamespace = unknownPod, unknownNamespace
	o.PodUID, o.ServiceAccountName = unknownPodUID, "default"
	if pod.there() {
		v.usedBy(pod)
	}
	if ref := source.at("secretRef"); ref.there() {
		m.secret(v, cmp.Or(ref.text("namespace"), o.PodNamespace), ref.text("name"))
	}
	return v
}

func (v *FlexVolume) usedBy(pod object) {
	o := &v.Options
	v.Pod = pod.key()
	o.PodName, o.PodNamespace = pod.name(), pod.namespace()
	o.PodUID = cmp.Or(pod.text("metadata", "uid"), unknownPodUID)
	o.ServiceAccountName = cmp.Or(pod.text("spec", "serviceAccountName"), "default")
	if group := pod.text("spec", "securityContext", "fsGroup"); group != "" {
		gid, err := strconv.ParseInt(group, 10, 64)
		if err != nil {
			v.fail("pod %s: spec.securityContext.fsGroup is not a number", pod.name())
		}
		o.FSGroup = &gid
	}
}

// secret fills in the Secret, if it is among the manifests.
func (m *manifests) secret(v *FlexVolume, namespace, name string) {
	s, ok := m.secrets[namespace+"/"+name]
	if !ok {
		v.unknownSecret = true
		return
	}
	v.refuse(objects.RefusedSecret(namespace, name, s.text("type"), v.FlexDriver))
	v.Options.Secrets = map[string]flex.Secret{}
	for key, encoded := range yamltext.Members(s.at("data").Node) {
		if isMasked(encoded.Value) {
			v.masked(key)
			continue
		}
		value, err := base64.StdEncoding.DecodeString(strings.TrimSpace(encoded.Value))
		if err != nil {
			v.fail("secret %s: the value of %q is not base64: put plain text into stringData", s.name(), key)
		}
		v.Options.Secrets[key] = flex.NewSecret(value)
	}
	for key, value := range yamltext.Members(s.at("stringData").Node) {
		v.Options.Secrets[key] = flex.NewSecret([]byte(value.Value))
	}
}
