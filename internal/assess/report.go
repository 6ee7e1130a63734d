// Package assess says which FlexVolumes a cluster or a set of manifests has, what fits
// them, and what stands in the way of CSI. It needs nothing that is installed.
//
// [Cluster] and [Manifests] read; [Assess] is a pure function of what they have read. A [Planner]
// shows what the CSI driver would be asked for each volume: the map.
package assess

import "time"

// An itemKind is how an object has, or makes, a FlexVolume.
type itemKind string

// The kinds.
const (
	persistentVolume itemKind = "PersistentVolume"
	// inlineVolume is flexVolume in a pod's spec, inlineTemplate in a workload's template.
	inlineVolume   itemKind = "InlineVolume"
	inlineTemplate itemKind = "InlineVolumeTemplate"
	// ephemeralVolume is a generic ephemeral volume of a class that makes FlexVolumes.
	ephemeralVolume itemKind = "EphemeralVolume"
	storageClass    itemKind = "StorageClass"
	pendingClaim    itemKind = "PendingClaim"
	claimTemplate   itemKind = "ClaimTemplate"
)

// kinds are all of them, in the order of tables.
func kinds() []itemKind {
	return []itemKind{persistentVolume, inlineVolume, inlineTemplate, ephemeralVolume, storageClass, pendingClaim, claimTemplate}
}

// An itemResult is what can become of an item.
type itemResult string

// The results.
const (
	// ready: a preset fits, and its CSI driver has a CSIDriver object.
	ready itemResult = "Ready"
	// installCSIDriver: a preset fits, but there is no CSIDriver object.
	installCSIDriver itemResult = "InstallCSIDriver"
	// checkCSIDriver: a preset fits; CSIDriver objects were not read.
	checkCSIDriver itemResult = "CheckCSIDriver"
	// writeMapping: no preset fits.
	writeMapping itemResult = "WriteMapping"
	// rewrite: an inline volume. The author of the pod has to change it.
	rewrite itemResult = "Rewrite"
	// replaceClass: it makes new FlexVolumes until its StorageClass is replaced.
	replaceClass itemResult = "ReplaceClass"
	// unsupported: the driver is known, and has no way to CSI by flex2csi, or Reason says why
	// it is not served.
	unsupported itemResult = "Unsupported"
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
	Migrated   int              `json:"migrated"`
	Releases   []clusterRelease `json:"releases"`
	Drivers    []driverItems    `json:"drivers"`
	Obstacles  []obstacle       `json:"obstacles"`
	Estimate   *timeEstimate    `json:"estimate,omitempty"`
	Next       []nextStep       `json:"next"`
	Items      []item           `json:"items"`
	Incomplete []string         `json:"incomplete,omitempty"`

	attachThemselves []string // nodes of such kubelets
	configured       bool     // a configuration was given
}

// A clusterRelease is a minor release of Kubernetes in the cluster.
type clusterRelease struct {
	Release string `json:"release"`
	Server  bool   `json:"server"`
	Nodes   int    `json:"nodes"`
	Tested  bool   `json:"tested"`
	// Lacks is what is different from newer releases.
	Lacks []string `json:"lacks,omitempty"`
}

// driverItems are a FlexVolume driver and how many items it has.
type driverItems struct {
	FlexDriver string           `json:"flexDriver"`
	Counts     map[itemKind]int `json:"counts"`
	Presets    []fit            `json:"presets,omitempty"`
	// Similar are presets to compare with, of drivers of the same name.
	Similar []string `json:"similarPresets,omitempty"`
	// Known is what is known of a driver without a preset.
	Known string `json:"known,omitempty"`
	// Refused counts items that neither the kubelet nor the bridge serves, by the reason.
	Refused map[string]int `json:"refused,omitempty"`

	without       int // items that no preset fits
	refusedInline int
	example       string // an object with a path
}

// A fit is a preset that fits volumes of a driver.
type fit struct {
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

	attaches bool // the CSI driver does, as far as is known
}

// An obstacle is in the way of a driver's volumes, or of all (no driver).
type obstacle struct {
	FlexDriver string `json:"flexDriver,omitempty"`
	What       string `json:"what"`
	Do         string `json:"do,omitempty"`
}

// A nextStep is what to do next.
type nextStep struct {
	Do      string `json:"do"`
	Command string `json:"command,omitempty"`
}

// A timeEstimate is how long flex2csi migrate apply takes for the PersistentVolumes that are
// ready, one by one, without restarts of pods.
type timeEstimate struct {
	// Live is false if a release of the cluster migrates no volume under a running pod.
	Live       bool `json:"live"`
	Volumes    int  `json:"volumes"`
	WithPods   int  `json:"withPods"`
	MinSeconds int  `json:"minSeconds"`
	MaxSeconds int  `json:"maxSeconds"`
}

// An item has, or makes, a FlexVolume.
type item struct {
	Kind       itemKind `json:"kind"`
	Namespace  string   `json:"namespace,omitempty"`
	Name       string   `json:"name"`
	FlexDriver string   `json:"flexDriver"`
	// Claim is the name of a PersistentVolume's claim, in Namespace.
	Claim        string `json:"claim,omitempty"`
	StorageClass string `json:"storageClass,omitempty"`
	// Pods is how many pods use it, on Nodes.
	Pods      int        `json:"pods"`
	Nodes     []string   `json:"nodes,omitempty"`
	Preset    string     `json:"preset,omitempty"`
	CSIDriver string     `json:"csiDriver,omitempty"`
	Result    itemResult `json:"result"`
	// Reason is why the volume is not supported, whatever its driver.
	Reason string `json:"reason,omitempty"`
	// RefusedByPolicy: once flex2csi is installed with the given configuration, its policy
	// denies new pods of this object.
	RefusedByPolicy bool `json:"refusedByPolicy,omitempty"`
	// Path is that of the flexVolume in an object that makes pods.
	Path string `json:"path,omitempty"`

	fsType  string
	windows bool
}
