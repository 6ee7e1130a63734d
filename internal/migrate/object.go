package migrate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/utils/ptr"
)

// A Manifest is an object as it is written: with the fields of the one that it was made of,
// also those that this program does not know.
type Manifest struct{ unstructured.Unstructured }

// MarshalJSON returns JSON in which a path or a mount option looks as people write it.
func (m *Manifest) MarshalJSON() ([]byte, error) { return encode(m.Object) }

// parse reads an object.
func parse(raw []byte) (*Manifest, error) {
	m := &Manifest{}
	if err := utiljson.Unmarshal(raw, &m.Object); err != nil {
		return nil, err
	}
	return m, nil
}

// A volume is a PersistentVolume that was read: by its type for what is looked at, and with
// all its fields for what is made of it.
type volume struct {
	*corev1.PersistentVolume
	object map[string]any
}

func asVolume(u *unstructured.Unstructured) (*volume, error) {
	v := &volume{PersistentVolume: &corev1.PersistentVolume{}, object: u.Object}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, v.PersistentVolume); err != nil {
		return nil, fmt.Errorf("read PersistentVolume %s: %w", u.GetName(), err)
	}
	return v, nil
}

func parseVolume(raw []byte) (*volume, error) {
	m, err := parse(raw)
	if err != nil {
		return nil, err
	}
	return asVolume(&m.Unstructured)
}

// flexDriver is the FlexVolume's driver; empty: it is no FlexVolume.
func (v *volume) flexDriver() string {
	return ptr.Deref(v.Spec.FlexVolume, corev1.FlexPersistentVolumeSource{}).Driver
}

// csi are the CSI volume's driver and handle; empty: it is no CSI volume.
func (v *volume) csi() (driver, handle string) {
	source := ptr.Deref(v.Spec.CSI, corev1.CSIPersistentVolumeSource{})
	return source.Driver, source.VolumeHandle
}

// claim is namespace/name of the claim; empty: there is none.
func (v *volume) claim() string {
	if v.Spec.ClaimRef == nil {
		return ""
	}
	return v.Spec.ClaimRef.Namespace + "/" + v.Spec.ClaimRef.Name
}

func (v *volume) claimUID() string {
	return string(ptr.Deref(v.Spec.ClaimRef, corev1.ObjectReference{}).UID)
}

func (v *volume) policy() string { return string(v.Spec.PersistentVolumeReclaimPolicy) }

func (v *volume) deleting() bool { return v.DeletionTimestamp != nil }

// An object has a name, and may be in a namespace.
type named interface {
	GetName() string
	GetNamespace() string
}

// full is how people name an object.
func full(o named) string {
	if o.GetNamespace() == "" {
		return o.GetName()
	}
	return o.GetNamespace() + "/" + o.GetName()
}

// volumeName is the PersistentVolume that a VolumeAttachment names; empty: it names none.
func volumeName(a *storagev1.VolumeAttachment) string {
	return ptr.Deref(a.Spec.Source.PersistentVolumeName, "")
}

// encode is JSON in which a path or a mount option looks as people write it.
func encode(value any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(b.Bytes()), nil
}

// sub returns an object in an object; nil if there is none.
func sub(object map[string]any, path ...string) map[string]any {
	value, _, _ := unstructured.NestedFieldNoCopy(object, path...)
	found, _ := value.(map[string]any)
	return found
}

// text returns a string in an object; empty if there is none.
func text(object map[string]any, path ...string) string {
	value, _, _ := unstructured.NestedString(object, path...)
	return value
}

// put sets a field, unless the value is empty.
func put[T string | []string | map[string]string](object map[string]any, key string, value T) {
	switch v := any(value).(type) {
	case string:
		if v != "" {
			object[key] = v
		}
	case []string:
		if len(v) > 0 {
			items := make([]any, len(v))
			for i, s := range v {
				items[i] = s
			}
			object[key] = items
		}
	case map[string]string:
		if len(v) == 0 {
			return
		}
		all := make(map[string]any, len(v))
		for k, s := range v {
			all[k] = s
		}
		object[key] = all
	}
}

// differences are the paths with values that are not the same in both, of which one
// may have more than was asked for.
func differences(want, got any, path string) (all []string) {
	w, isObject := want.(map[string]any)
	g, alike := got.(map[string]any)
	if !isObject || !alike {
		if shown(want) != shown(got) {
			all = append(all, fmt.Sprintf("%s is %s, and %s was asked for", strings.TrimPrefix(path, "."), shown(got), shown(want)))
		}
		return all
	}
	for _, key := range slices.Sorted(maps.Keys(w)) {
		all = append(all, differences(w[key], g[key], path+"."+key)...)
	}
	return all
}

// additions are the paths of which one has values that were not asked for. What
// is another value on both sides is among the [differences].
func additions(want, got any, path string) (all []string) {
	if want == nil && got != nil {
		return []string{fmt.Sprintf("%s is %s, which was not asked for", strings.TrimPrefix(path, "."), shown(got))}
	}
	w, isObject := want.(map[string]any)
	g, alike := got.(map[string]any)
	if !isObject || !alike {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(g)) {
		all = append(all, additions(w[key], g[key], path+"."+key)...)
	}
	return all
}

// shown is a value for people, and to compare.
func shown(value any) string {
	if value == nil {
		return "not there"
	}
	text, err := encode(value)
	if err != nil {
		return "unreadable"
	}
	return string(text)
}
