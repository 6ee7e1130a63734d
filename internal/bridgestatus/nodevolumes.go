package bridgestatus

// This file has the report of a node's volumes that its daemon writes for
// flex2csi migrate. The daemon answers on sockets of its node only, and nothing else
// in the API says which pods have their volume from the bridge.
//
// The report is a JSON document in a ConfigMap with the node's name. A line about a
// pod stays true for as long as the pod has the volume. So an old document lacks
// volumes but names none that it should not, if the reader compares the pod's UID and
// the node's boot id.

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/flex2csi/flex2csi/internal/kubeletdir"
	"github.com/flex2csi/flex2csi/internal/volstate"
)

const (
	// Namespace has the ConfigMaps, and nothing else: a node may write there.
	Namespace = "flex2csi-nodes"
	// Key is the document's key in the ConfigMap.
	Key = "volumes.json"
	// Label is on all these ConfigMaps.
	Label = "flex2csi.io/node-volumes"

	apiVersion = "flex2csi.io/v1alpha1"
	kind       = "NodeVolumes"
	// MaxSize is below the API server's limit for an object.
	MaxSize = 900 << 10
)

// A NodeVolumes has the volumes of one node.
type NodeVolumes struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Node       string    `json:"node"`
	BootID     string    `json:"bootID"`
	Version    string    `json:"version"` // of the daemon
	Written    time.Time `json:"written"`
	// FlexDrivers are the drivers that the daemon serves, vendor/name, sorted.
	FlexDrivers []string `json:"flexDrivers,omitempty"`
	// StagingDrivers are their CSI drivers with STAGE_UNSTAGE_VOLUME, sorted.
	StagingDrivers []string `json:"stagingDrivers,omitempty"`
	// Incomplete: not all volumes fit.
	Incomplete bool         `json:"incomplete,omitempty"`
	Volumes    []NodeVolume `json:"volumes,omitempty"`
}

// Where a volume is staged.
const (
	// NotStaged: the CSI driver does not stage.
	NotStaged = ""
	// StagedAsByKubelet: at the kubelet's own staging path.
	StagedAsByKubelet = "Kubelet"
	// StagedElsewhere: as an earlier version was configured to.
	StagedElsewhere = "Elsewhere"
)

// A NodeVolume is a volume with a record of the daemon.
type NodeVolume struct {
	PersistentVolume string `json:"persistentVolume"`
	FlexDriver       string `json:"flexDriver"`
	CSIDriver        string `json:"csiDriver"`
	VolumeHandle     string `json:"volumeHandle"`
	Staged           string `json:"staged,omitempty"`
	// Uncertain: something is under way, or has failed half-way.
	Uncertain bool `json:"uncertain,omitempty"`
	// TakenOver: the kubelet's CSI plugin has it on the node, too, for any pod.
	TakenOver bool      `json:"takenOver,omitempty"`
	Pods      []NodePod `json:"pods,omitempty"`
}

// A NodePod has the volume from the bridge. A pod that has it only from the kubelet's CSI
// plugin is in no document.
type NodePod struct {
	UID string `json:"uid"`
	// TakenOver: the kubelet's CSI plugin has mounted the volume for this pod, too.
	TakenOver bool `json:"takenOver,omitempty"`
}

// NodeVolumesOf returns the document of records. staging returns the kubelet's own staging path
// of a volume.
func NodeVolumesOf(node, bootID, version string, now time.Time, records []*volstate.Record, staging func(*volstate.Record) string) NodeVolumes {
	d := NodeVolumes{APIVersion: apiVersion, Kind: kind, Node: node, BootID: bootID, Version: version, Written: now.UTC()}
	for _, r := range records {
		d.Volumes = append(d.Volumes, volume(r, staging(r)))
	}
	slices.SortFunc(d.Volumes, func(a, b NodeVolume) int {
		return cmp.Or(cmp.Compare(a.CSIDriver, b.CSIDriver), cmp.Compare(a.VolumeHandle, b.VolumeHandle))
	})
	return d
}

func volume(r *volstate.Record, staging string) NodeVolume {
	v := NodeVolume{
		PersistentVolume: r.Name, FlexDriver: r.FlexDriver, CSIDriver: r.Driver, VolumeHandle: r.Handle,
		Uncertain: r.Uncertain(),
	}
	switch {
	case r.Stage == volstate.None:
	case r.StagingPath == staging:
		v.Staged = StagedAsByKubelet
	default:
		v.Staged = StagedElsewhere
	}
	for dir, t := range r.Targets {
		if t.Publish != volstate.Done {
			continue
		}
		uid := t.Pod.UID
		if place, err := kubeletdir.Parse(dir); err == nil && uid == "" {
			uid = place.PodUID
		}
		v.Pods = append(v.Pods, NodePod{UID: uid})
	}
	slices.SortFunc(v.Pods, func(a, b NodePod) int { return cmp.Compare(a.UID, b.UID) })
	return v
}

// Encode returns the document for the ConfigMap. If it is too large, volumes are left
// out and Incomplete is set: a volume that is missing is not handed over.
func (d NodeVolumes) Encode() (string, error) {
	for {
		data, err := json.Marshal(d)
		if err != nil {
			return "", err
		}
		if len(data) <= MaxSize || len(d.Volumes) == 0 {
			return string(data), nil
		}
		d.Incomplete = true
		d.Volumes = d.Volumes[:len(d.Volumes)*9/10]
	}
}

// DecodeNodeVolumes reads a document.
func DecodeNodeVolumes(data string) (*NodeVolumes, error) {
	var d NodeVolumes
	if err := json.Unmarshal([]byte(data), &d); err != nil {
		return nil, err
	}
	if d.APIVersion != apiVersion || d.Kind != kind {
		return nil, fmt.Errorf("it is a %s of %s, want %s of %s", d.Kind, d.APIVersion, kind, apiVersion)
	}
	return &d, nil
}

// Find returns a volume of the node, or nil.
func (d *NodeVolumes) Find(driver, handle string) *NodeVolume {
	for i := range d.Volumes {
		if v := &d.Volumes[i]; v.CSIDriver == driver && v.VolumeHandle == handle {
			return v
		}
	}
	return nil
}

// setTakenOver sets TakenOver for the volumes that the kubelet's CSI plugin has.
func (v *NodeVolume) setTakenOver(kubelet func(pod string) bool) {
	v.TakenOver = v.TakenOver || kubelet("")
	for i := range v.Pods {
		v.Pods[i].TakenOver = kubelet(v.Pods[i].UID)
		v.TakenOver = v.TakenOver || v.Pods[i].TakenOver
	}
}

// Has reports whether a pod has the volume from the bridge.
func (v *NodeVolume) Has(uid string) bool {
	return slices.ContainsFunc(v.Pods, func(p NodePod) bool { return p.UID == uid })
}

// HasTakenOver reports whether a pod has it from the kubelet's CSI plugin, too.
func (v *NodeVolume) HasTakenOver(uid string) bool {
	return slices.ContainsFunc(v.Pods, func(p NodePod) bool { return p.UID == uid && p.TakenOver })
}

// Stages reports whether a CSI driver is known to stage volumes.
func (d *NodeVolumes) Stages(csiDriver string) bool {
	return slices.Contains(d.StagingDrivers, csiDriver) || slices.ContainsFunc(d.Volumes, func(v NodeVolume) bool {
		return v.CSIDriver == csiDriver && v.Staged != NotStaged
	})
}

// Serves reports whether the daemon serves a FlexVolume driver; false if the daemon is
// too old to say so.
func (d *NodeVolumes) Serves(flexDriver string) bool {
	return slices.Contains(d.FlexDrivers, flexDriver)
}
