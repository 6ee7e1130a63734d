package csidriver

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// A VolumeView is a volume as the driver sees it, for tests that compare.
type VolumeView struct {
	ID        string
	Capacity  int64
	Ephemeral bool
	// AttachedTo are the nodes to which it is attached.
	AttachedTo []string
	// Nodes are those that have it staged or published, or were asked to.
	Nodes map[string]NodeView
}

// A NodeView is what a node has of a volume. The mount table of the node says
// whether it is so.
type NodeView struct {
	StagingPath string
	Targets     []string
}

// Idle reports whether the volume is unused.
func (v VolumeView) Idle() bool { return len(v.AttachedTo) == 0 && len(v.Nodes) == 0 }

// Inspect reads what drivers that share a directory know. It asks no driver,
// so it works on a dead one's directory, too.
func Inspect(dir string) (map[string]VolumeView, error) {
	s := store{dir: dir}
	ids, err := s.volumeIDs()
	if err != nil {
		return nil, err
	}
	volumes := map[string]VolumeView{}
	for _, id := range ids {
		v, err := s.volume(id)
		if err != nil {
			return nil, err
		}
		if v == nil {
			continue
		}
		view := VolumeView{ID: id, Ephemeral: v.Ephemeral, AttachedTo: v.publishedAt(), Nodes: map[string]NodeView{}}
		info, err := os.Stat(s.image(id))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if err == nil {
			view.Capacity = info.Size()
		}
		volumes[id] = view
	}
	return volumes, s.inspectNodes(volumes)
}

func (s store) inspectNodes(volumes map[string]VolumeView) error {
	nodes, err := os.ReadDir(s.nodes())
	if err != nil {
		return err
	}
	for _, node := range nodes {
		ids, err := recordsIn(filepath.Join(s.nodes(), node.Name()))
		if err != nil {
			return err
		}
		for _, id := range ids {
			r, err := s.nodeVolume(node.Name(), id)
			if err != nil {
				return err
			}
			v, ok := volumes[id]
			if !ok {
				return fmt.Errorf("node %s has volume %s, which is not there", node.Name(), id)
			}
			v.Nodes[node.Name()] = NodeView{StagingPath: r.StagingPath, Targets: slices.Sorted(maps.Keys(r.Targets))}
		}
	}
	return nil
}
