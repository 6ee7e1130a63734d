// Package nodevolumes is what the daemon of each node tells the cluster of the
// volumes that it has, for flex2csi migrate: the daemon answers on sockets of its
// node only, and nothing else in the API says which pod has its volume through
// the bridge.
//
// It is one document a node, in a ConfigMap with the node's name. What it says
// of a pod stays true for as long as the pod has the volume: so an old document
// says too little, and never too much, provided that the pod's UID and the
// node's boot id are compared.
package nodevolumes

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
	// Key is that of the document in its ConfigMap.
	Key = "volumes.json"
	// Label is on all of them.
	Label = "flex2csi.io/node-volumes"

	apiVersion = "flex2csi.io/v1alpha1"
	kind       = "NodeVolumes"
	// MaxSize is below what the API server takes for an object.
	MaxSize = 900 << 10
)

// A Document is what one node's daemon has.
type Document struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Node       string    `json:"node"`
	BootID     string    `json:"bootID"`
	Version    string    `json:"version"` // of the daemon
	Written    time.Time `json:"written"`
	// FlexDrivers are those that the daemon serves, vendor/name, in order.
	FlexDrivers []string `json:"flexDrivers,omitempty"`
	// StagingDrivers are the CSI drivers of these that have said that they stage
	// volumes (STAGE_UNSTAGE_VOLUME), in order.
	StagingDrivers []string `json:"stagingDrivers,omitempty"`
	// Incomplete: there was no room for all volumes.
	Incomplete bool     `json:"incomplete,omitempty"`
	Volumes    []Volume `json:"volumes,omitempty"`
}

// Where a volume is staged.
const (
	// StagedByNobody: the CSI driver does not stage.
	StagedByNobody = ""
	// StagedAsByKubelet: where the kubelet's CSI plugin would have it staged.
	StagedAsByKubelet = "Kubelet"
	// StagedElsewhere: by the configuration (stagingRoot).
	StagedElsewhere = "Elsewhere"
)

// A Volume is one that the daemon has a record of.
type Volume struct {
	PersistentVolume string `json:"persistentVolume"`
	FlexDriver       string `json:"flexDriver"`
	CSIDriver        string `json:"csiDriver"`
	VolumeHandle     string `json:"volumeHandle"`
	Staged           string `json:"staged,omitempty"`
	// InDoubt: something is under way, or has failed half-way.
	InDoubt bool `json:"inDoubt,omitempty"`
	// TakenOver: the kubelet's CSI plugin has it on the node, too, for whichever
	// pods.
	TakenOver bool  `json:"takenOver,omitempty"`
	Pods      []Pod `json:"pods,omitempty"`
}

// A Pod is one that has the volume from the bridge. One that has it from the
// kubelet's CSI plugin alone is in no document.
type Pod struct {
	UID string `json:"uid"`
	// TakenOver: the kubelet's CSI plugin has mounted the volume for this pod, too,
	// beside what it has from the bridge.
	TakenOver bool `json:"takenOver,omitempty"`
}

// Of makes the document of records. staging is where the kubelet's CSI plugin
// would have a volume staged.
func Of(node, bootID, version string, now time.Time, records []*volstate.Record, staging func(*volstate.Record) string) Document {
	d := Document{APIVersion: apiVersion, Kind: kind, Node: node, BootID: bootID, Version: version, Written: now.UTC()}
	for _, r := range records {
		d.Volumes = append(d.Volumes, volume(r, staging(r)))
	}
	slices.SortFunc(d.Volumes, func(a, b Volume) int {
		return cmp.Or(cmp.Compare(a.CSIDriver, b.CSIDriver), cmp.Compare(a.VolumeHandle, b.VolumeHandle))
	})
	return d
}

func volume(r *volstate.Record, staging string) Volume {
	v := Volume{
		PersistentVolume: r.Name, FlexDriver: r.FlexDriver, CSIDriver: r.Driver, VolumeHandle: r.Handle,
		InDoubt: r.InDoubt(), TakenOver: r.TakenOver,
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
		v.Pods = append(v.Pods, Pod{UID: uid})
	}
	slices.SortFunc(v.Pods, func(a, b Pod) int { return cmp.Compare(a.UID, b.UID) })
	return v
}

// Encode is the document as the ConfigMap has it. What there is no room for is
// left away, and said so: a volume that is not there is not handed over.
func (d Document) Encode() (string, error) {
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

// Decode reads one.
func Decode(data string) (*Document, error) {
	var d Document
	if err := json.Unmarshal([]byte(data), &d); err != nil {
		return nil, err
	}
	if d.APIVersion != apiVersion || d.Kind != kind {
		return nil, fmt.Errorf("it is a %s of %s, want %s of %s", d.Kind, d.APIVersion, kind, apiVersion)
	}
	return &d, nil
}

// Find returns what a node has of a volume; nil: nothing.
func (d *Document) Find(driver, handle string) *Volume {
	for i := range d.Volumes {
		if v := &d.Volumes[i]; v.CSIDriver == driver && v.VolumeHandle == handle {
			return v
		}
	}
	return nil
}

// look adds what the kubelet's CSI plugin has.
func (v *Volume) look(kubelet func(pod string) bool) {
	v.TakenOver = v.TakenOver || kubelet("")
	for i := range v.Pods {
		v.Pods[i].TakenOver = kubelet(v.Pods[i].UID)
		v.TakenOver = v.TakenOver || v.Pods[i].TakenOver
	}
}

// Has reports whether a pod has the volume from the bridge.
func (v *Volume) Has(uid string) bool {
	return slices.ContainsFunc(v.Pods, func(p Pod) bool { return p.UID == uid })
}

// HasTakenOver reports whether a pod has it from the kubelet's CSI plugin as
// well.
func (v *Volume) HasTakenOver(uid string) bool {
	return slices.ContainsFunc(v.Pods, func(p Pod) bool { return p.UID == uid && p.TakenOver })
}

// Stages reports whether a CSI driver is known to stage volumes.
func (d *Document) Stages(csiDriver string) bool {
	return slices.Contains(d.StagingDrivers, csiDriver) || slices.ContainsFunc(d.Volumes, func(v Volume) bool {
		return v.CSIDriver == csiDriver && v.Staged != StagedByNobody
	})
}

// Serves reports whether the daemon serves a FlexVolume driver. One that is
// too old to say so does not.
func (d *Document) Serves(flexDriver string) bool { return slices.Contains(d.FlexDrivers, flexDriver) }
