package objects

// This file finds the FlexVolumes that objects have, or make, whatever the kind of the
// object. All commands that look for FlexVolumes without a PersistentVolume ask it, so that
// no two of them disagree about a cluster.

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// A FlexUse is a flexVolume with a driver in an object.
type FlexUse struct {
	Kind, Namespace, Name string // of the object
	// Path is that of the flexVolume in the object, and Volume the name that it has there.
	Path, Volume string
	Driver       string
	Source       map[string]any // the flexVolume
	// Windows: the pod is one for nodes with Windows.
	Windows bool

	owner string
}

// FSType returns the filesystem that the flexVolume asks for.
func (u *FlexUse) FSType() string { return text(u.Source, "fsType") }

// FlexUsesIn returns the FlexVolumes of an object, and the places where it has one that cannot be
// read: a flexVolume without a driver, or a text that is no YAML.
func FlexUsesIn(object map[string]any) (uses []FlexUse, unclear []string) {
	w := walker{of: FlexUse{Kind: text(object, "kind")}}
	o := unstructured.Unstructured{Object: object}
	w.of.Namespace, w.of.Name = o.GetNamespace(), o.GetName()
	for _, key := range slices.Sorted(maps.Keys(object)) {
		if key != "status" { // it makes no pods
			w.value(key, object[key], place{volume: w.of.Name, parent: object})
		}
	}
	w.flexVolume("flexVolume", object["flexVolume"], place{})
	return w.uses, w.unclear
}

// UsesFlexVolume reports whether a document that is no object of Kubernetes has FlexVolumes.
func UsesFlexVolume(document map[string]any) bool {
	uses, unclear := FlexUsesIn(document)
	return len(uses)+len(unclear) > 0
}

type walker struct {
	of      FlexUse
	uses    []FlexUse
	unclear []string
	texts   int // that the value is in, one in another
}

// A place is what is around a value.
type place struct {
	volume  string // name of the nearest object that has one
	parent  map[string]any
	windows bool
}

func (w *walker) value(path string, value any, at place) {
	switch v := value.(type) {
	case map[string]any:
		w.object(path, v, at)
	case []any:
		for i, item := range v {
			w.value(fmt.Sprintf("%s[%d]", path, i), item, at)
		}
	case string:
		w.text(path, v, at)
	}
}

func (w *walker) object(path string, o map[string]any, at place) {
	at = place{volume: at.volume, parent: o, windows: at.windows || (o["volumes"] != nil && RunsOnWindows(o))}
	if name := text(o, "name"); name != "" {
		at.volume = name
	}
	for _, key := range slices.Sorted(maps.Keys(o)) {
		switch {
		case key == "annotations", key == "managedFields": // they have the object as it was
		case slices.Contains(spellings(), key):
			w.flexVolume(path+"."+key, o[key], at)
		default:
			w.value(path+"."+key, o[key], at)
		}
	}
}

// spellings are the keys of the API, and of Terraform's kubernetes provider.
func spellings() []string { return []string{"flexVolume", "flex_volume"} }

// flexVolume takes the value of such a key; Terraform has a list of one.
func (w *walker) flexVolume(path string, value any, at place) {
	switch v := value.(type) {
	case nil:
	case []any:
		for i, item := range v {
			w.flexVolume(fmt.Sprintf("%s[%d]", path, i), item, at)
		}
	case map[string]any:
		use := w.of
		use.Path, use.Volume, use.Source, use.Driver = path, at.volume, v, text(v, "driver")
		use.Windows = at.windows || onWindows(use.Driver)
		if use.Driver == "" {
			w.unclear = append(w.unclear, path+" has no driver")
			return
		}
		w.uses = append(w.uses, use)
	default:
		w.unclear = append(w.unclear, fmt.Sprintf("%s is a %T", path, value))
	}
}

// mentions finds a flexVolume in a text of YAML, JSON, HCL or JSON patches.
var mentions = regexp.MustCompile(`/flexVolume\b|\b(flexVolume|flex_volume)["']?\s*[:{]`)

// text walks through manifests in a text: values of a chart, a ConfigMap, a patch.
func (w *walker) text(path, text string, at place) {
	const deepest = 3
	if !mentions.MatchString(text) {
		return
	}
	found := len(w.uses)
	w.texts++
	for document := range bytes.SplitSeq([]byte(text), []byte("\n---")) {
		var value any
		if w.texts > deepest || yaml.Unmarshal(document, &value) != nil {
			continue
		}
		if _, again := value.(string); !again {
			w.value(path, value, at)
		}
	}
	w.texts--
	if len(w.uses) == found {
		w.unclear = append(w.unclear, path+" is a text with a flexVolume")
	}
}

// FlexVolumesInPod returns the volumes of a pod that are FlexVolumes without a PersistentVolume. A pod
// that is finished has none.
func FlexVolumesInPod(p *corev1.Pod) (all []corev1.Volume) {
	if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(p.Spec.Volumes), func(v corev1.Volume) bool { return v.FlexVolume == nil })
}

// PodOnWindows reports whether a pod runs on nodes with Windows.
func PodOnWindows(p *corev1.Pod) bool {
	spec, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&p.Spec)
	return err == nil && RunsOnWindows(spec)
}

// onWindows reports whether a driver is a script of Windows: the kubelet executes what the
// driver is called (microsoft/K8s-Storage-Plugins).
func onWindows(driver string) bool {
	return slices.ContainsFunc([]string{".cmd", ".bat", ".ps1", ".exe"}, func(end string) bool { return strings.HasSuffix(strings.ToLower(driver), end) })
}

// RunsOnWindows reports whether the specification of a pod wants nodes with Windows.
func RunsOnWindows(spec any) bool {
	switch v := spec.(type) {
	case []any:
		return slices.ContainsFunc(v, RunsOnWindows)
	case map[string]any:
		if isOS(text(v, "key")) && text(v, "operator") == "In" {
			values, _ := v["values"].([]any)
			return len(values) > 0 && !slices.ContainsFunc(values, func(value any) bool { return value != "windows" })
		}
		for key, value := range v {
			os, _ := value.(map[string]any)
			if (isOS(key) && value == "windows") || (key == "os" && text(os, "name") == "windows") || (key == "windowsOptions" && len(os) > 0) ||
				(key != "volumes" && key != "template" && RunsOnWindows(value)) {
				return true
			}
		}
	}
	return false
}

func isOS(label string) bool {
	return label == corev1.LabelOSStable || label == "beta.kubernetes.io/os"
}

func text(o map[string]any, key string) string {
	s, _ := o[key].(string)
	return s
}
