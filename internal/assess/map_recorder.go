package assess

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/flex2csi/flex2csi/internal/bridge"
	"github.com/flex2csi/flex2csi/internal/csiclient"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// recorder is a CSI driver and a node on which everything succeeds and nothing
// happens. The bridge works on one volume at a time here, so it needs no lock.
type recorder struct {
	features  csivol.Features
	actions   []Action
	published string // where the driver would have mounted
}

var (
	_ bridge.Service = (*recorder)(nil)
	_ bridge.Mounts  = (*recorder)(nil)
	_ bridge.Dirs    = (*recorder)(nil)
)

// take returns what was done since it was called last.
func (r *recorder) take() []Action {
	actions := r.actions
	r.actions = nil
	return actions
}

func (r *recorder) rpc(name string, request csiclient.Message) {
	r.actions = append(r.actions, Action{RPC: name, Request: request})
}

func (r *recorder) node(format string, args ...any) {
	r.actions = append(r.actions, Action{Node: fmt.Sprintf(format, args...)})
}

func (r *recorder) Features(context.Context) (csivol.Features, error) { return r.features, nil }

func (r *recorder) ControllerPublish(_ context.Context, q csivol.AttachRequest) (map[string]string, error) {
	r.rpc("ControllerPublishVolume", csiclient.ControllerPublishRequest(q, r.features))
	return map[string]string{unknownContext: unknownContext}, nil
}

func (r *recorder) ControllerUnpublish(_ context.Context, handle, nodeID string, secrets map[string]flex.Secret) error {
	r.rpc("ControllerUnpublishVolume", csiclient.ControllerUnpublishRequest(handle, nodeID, secrets))
	return nil
}

func (r *recorder) ControllerExpand(_ context.Context, q csivol.ExpandRequest) (bool, error) {
	r.rpc("ControllerExpandVolume", csiclient.ControllerExpandRequest(q, r.features))
	return true, nil
}

func (r *recorder) NodeStage(_ context.Context, q csivol.StageRequest) error {
	r.rpc("NodeStageVolume", csiclient.NodeStageRequest(q, r.features))
	return nil
}

func (r *recorder) NodeUnstage(_ context.Context, handle, path string) error {
	r.rpc("NodeUnstageVolume", csiclient.NodeUnstageRequest(handle, path))
	return nil
}

func (r *recorder) NodePublish(_ context.Context, q csivol.PublishRequest) error {
	r.rpc("NodePublishVolume", csiclient.NodePublishRequest(q, r.features))
	r.published = q.TargetPath
	return nil
}

func (r *recorder) NodeUnpublish(_ context.Context, handle, path string) error {
	r.rpc("NodeUnpublishVolume", csiclient.NodeUnpublishRequest(handle, path))
	r.published = ""
	return nil
}

func (r *recorder) NodeExpand(_ context.Context, q csivol.ExpandRequest) error {
	r.rpc("NodeExpandVolume", csiclient.NodeExpandRequest(q, r.features))
	return nil
}

// NodeStats is for metrics; no callout asks for it.
func (r *recorder) NodeStats(context.Context, string, string, string) (csivol.Stats, error) {
	return csivol.Stats{}, nil
}

// Bind, Marker, Unmount and SetGroup are what a person would see on the node.

func (r *recorder) Bind(_ context.Context, source, target string, readOnly bool) error {
	how := ""
	if readOnly {
		how = ", read-only"
	}
	r.node("bind %s onto %s%s", source, target, how)
	return nil
}

func (r *recorder) ReadOnly(_ context.Context, path string) error {
	r.node("make %s read-only", path)
	return nil
}

func (r *recorder) Marker(_ context.Context, dir string) error {
	r.node("mount a marker at %s", dir)
	return nil
}

// Guard and RemoveTarget are not shown: they are part of NodePublishVolume and its reversal.
func (r *recorder) Guard(context.Context, string) error        { return nil }
func (r *recorder) RemoveTarget(context.Context, string) error { return nil }

func (r *recorder) Unmount(_ context.Context, path string) error {
	r.node("unmount %s", path)
	return nil
}

func (r *recorder) SetGroup(_ context.Context, path string, gid int64) error {
	r.node("give %s to group %d, unless its root has it", path, gid)
	return nil
}

func (r *recorder) Mounted(path string) (bool, error) { return path == r.published, nil }

func (r *recorder) Below(string) ([]string, error) { return nil, nil }

func (r *recorder) Size(string) (fs, device int64, err error) { return math.MaxInt64, 0, nil }

func (r *recorder) SameFilesystem(string, string) (bool, error) { return false, nil }

func (r *recorder) Healthy(string) error { return nil }

// Directories are made and removed silently.

func (r *recorder) Make(string) error   { return nil }
func (r *recorder) Remove(string) error { return nil }

// Exists: there is what the kubelet makes for a pod, and nothing else.
func (r *recorder) Exists(path string) (bool, error) {
	return strings.Contains(path, "/pods/"), nil
}
