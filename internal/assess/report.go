// Package assess says which FlexVolumes a cluster or a set of manifests has, what fits
// them, and what stands in the way of CSI. It needs nothing that is installed.
//
// [Cluster], [Path] and [Manifests] read; [Assess] is a pure function of what they have read.
package assess

import "time"

// A Kind is how an object has, or makes, a FlexVolume.
type Kind string

// The kinds.
const (
	PersistentVolume Kind = "PersistentVolume"
	// Inline is flexVolume in a pod's spec, InlineTemplate in a workload's template.
	Inline         Kind = "InlineVolume"
	InlineTemplate Kind = "InlineVolumeTemplate"
	// Ephemeral is a generic ephemeral volume of a class that makes FlexVolumes.
	Ephemeral     Kind = "EphemeralVolume"
	StorageClass  Kind = "StorageClass"
	PendingClaim  Kind = "PendingClaim"
	ClaimTemplate Kind = "ClaimTemplate"
)

// Kinds are all of them, in the order of tables.
func Kinds() []Kind {
	return []Kind{PersistentVolume, Inline, InlineTemplate, Ephemeral, StorageClass, PendingClaim, ClaimTemplate}
}

// A Result is what can become of an item.
type Result string

// The results.
const (
	// Ready: a preset fits, and its CSI driver has a CSIDriver object.
	Ready Result = "Ready"
	// InstallCSIDriver: a preset fits, but there is no CSIDriver object.
	InstallCSIDriver Result = "InstallCSIDriver"
	// CheckCSIDriver: a preset fits; CSIDriver objects were not read.
	CheckCSIDriver Result = "CheckCSIDriver"
	// WriteMapping: no preset fits.
	WriteMapping Result = "WriteMapping"
	// Rewrite: an inline volume. The author of the pod has to change it.
	Rewrite Result = "Rewrite"
	// ReplaceClass: it makes new FlexVolumes until its StorageClass is replaced.
	ReplaceClass Result = "ReplaceClass"
	// Unsupported: the driver is known, and has no way to CSI by flex2csi.
	Unsupported Result = "Unsupported"
)

// A Report is the document of flex2csi assess.
type Report struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Made       time.Time `json:"made"`
	Source     string    `json:"source"`
	// FlexVolumes is how many objects have or make FlexVolumes.
	FlexVolumes int `json:"flexVolumes"`
	// Migrated is how many PersistentVolumes flex2csi has made CSI volumes.
	Migrated   int        `json:"migrated"`
	Releases   []Release  `json:"releases"`
	Drivers    []Driver   `json:"drivers"`
	Obstacles  []Obstacle `json:"obstacles"`
	Estimate   *Estimate  `json:"estimate,omitempty"`
	Next       []Step     `json:"next"`
	Items      []Item     `json:"items"`
	Incomplete []string   `json:"incomplete,omitempty"`
}

// A Release is a minor release of Kubernetes in the cluster.
type Release struct {
	Release string `json:"release"`
	Server  bool   `json:"server"`
	Nodes   int    `json:"nodes"`
	Tested  bool   `json:"tested"`
	// Lacks is what is different from newer releases.
	Lacks []string `json:"lacks,omitempty"`
}

// A Driver is a FlexVolume driver.
type Driver struct {
	FlexDriver string       `json:"flexDriver"`
	Counts     map[Kind]int `json:"counts"`
	Presets    []Fit        `json:"presets,omitempty"`
	// Similar are presets to compare with, of drivers of the same name.
	Similar []string `json:"similarPresets,omitempty"`
	// Known is what is known of a driver without a preset.
	Known string `json:"known,omitempty"`
}

// A Fit is a preset that fits volumes of a driver.
type Fit struct {
	Preset     string `json:"preset"`
	FlexDriver string `json:"flexDriver"`
	CSIDriver  string `json:"csiDriver"`
	// Installed is whether there is a CSIDriver object; nil: not known.
	Installed *bool  `json:"installed,omitempty"`
	Live      string `json:"live"`
	Needs     string `json:"needs"`
	// FillIn are names of values that only the operator knows.
	FillIn []string `json:"fillIn,omitempty"`
	// Items is how many of the driver's items the preset fits.
	Items int `json:"items"`
}

// An Obstacle is in the way of a driver's volumes, or of all (no driver).
type Obstacle struct {
	FlexDriver string `json:"flexDriver,omitempty"`
	What       string `json:"what"`
	Do         string `json:"do,omitempty"`
}

// A Step is what to do next.
type Step struct {
	Do      string `json:"do"`
	Command string `json:"command,omitempty"`
}

// An Estimate is how long flex2csi migrate apply takes for the PersistentVolumes that are
// ready, one by one, without restarts of pods.
type Estimate struct {
	Volumes    int `json:"volumes"`
	WithPods   int `json:"withPods"`
	MinSeconds int `json:"minSeconds"`
	MaxSeconds int `json:"maxSeconds"`
}

// An Item has, or makes, a FlexVolume.
type Item struct {
	Kind       Kind   `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
	FlexDriver string `json:"flexDriver"`
	// Claim is the name of a PersistentVolume's claim, in Namespace.
	Claim        string `json:"claim,omitempty"`
	StorageClass string `json:"storageClass,omitempty"`
	// Pods is how many pods use it, on Nodes.
	Pods      int      `json:"pods"`
	Nodes     []string `json:"nodes,omitempty"`
	Preset    string   `json:"preset,omitempty"`
	CSIDriver string   `json:"csiDriver,omitempty"`
	Result    Result   `json:"result"`

	fsType string
}
