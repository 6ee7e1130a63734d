package bridge_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/kubeletdir"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// fakeDriver is a CSI driver that keeps to the specification and to the letter
// of it: it refuses calls out of order, and fails where a test says so. It is
// for faults that a real one does not give on demand.
type fakeDriver struct {
	features csivol.Features
	away     error // what Features fails with
	unseen   bool  // what it publishes is not seen on the node
	// inCluster: its controller is there, and attaches.
	inCluster bool

	mu        sync.Mutex
	calls     []string
	fail      map[string][]error // by method, one for each call
	after     map[string]bool    // whether the work is done before it fails
	attached  map[string]string
	staged    map[string]string
	published map[string]string // target to handle
	hold      chan struct{}     // NodeStage waits for it
	mounts    *fakeMounts
	groups    []string          // volume_mount_group, call by call
	context   map[string]string // of the last NodePublish
	staging   string            // of the last NodePublish
	unstages  bool              // NodeUnstage is there, though Features says no
	below     bool              // stages as ceph-csi, below the staging path
	leaves    bool              // what it unstages stays mounted
	stagedFor string            // the secret "key" of what is staged
	asked     []string          // fsType and volume context of each call that sets up
	made      bool              // the last NodePublish found its target
	harm      []string          // what it was asked for, and has refused
	between   func()            // in NodePublish, when the work is done
	// publishContext is what ControllerPublish answers more.
	publishContext map[string]string
}

func newFakeDriver(m *fakeMounts) *fakeDriver {
	return &fakeDriver{
		features: csivol.Features{Name: "csi.example.com", NodeID: "node-id", Stage: true, Attach: true, Controller: true, NodeExpand: true, ControllerExpand: true},
		fail:     map[string][]error{}, after: map[string]bool{},
		attached: map[string]string{}, staged: map[string]string{}, published: map[string]string{},
		mounts: m,
	}
}

// do is one RPC: note it, fail if told so, before or after the work.
func (f *fakeDriver) do(method, what string, work func() error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, method)
	var injected error
	if queue := f.fail[method]; len(queue) > 0 {
		injected, f.fail[method] = queue[0], queue[1:]
		if injected != nil && !f.after[method] {
			return injected
		}
	}
	if err := work(); err != nil {
		return fmt.Errorf("%s %s: %w", method, what, err)
	}
	return injected
}

// stageMount is where it stages.
func (f *fakeDriver) stageMount(path, handle string) string {
	if f.below {
		return filepath.Join(path, handle)
	}
	return path
}

// ask notes what is asked for in a call that sets up.
func (f *fakeDriver) ask(c csivol.Capability, context map[string]string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, c.FSType+" "+context["share"])
}

func final(code flex.Code, text string) error {
	return &csivol.RPCError{Method: "test", Code: code, Message: text}
}

func (f *fakeDriver) Features(context.Context) (csivol.Features, error) { return f.features, f.away }

func (f *fakeDriver) ControllerPublish(_ context.Context, r csivol.AttachRequest) (map[string]string, error) {
	f.ask(r.Capability, r.Context)
	published := map[string]string{"device": "d"}
	maps.Copy(published, f.publishContext)
	return published, f.do("ControllerPublish", r.Handle, func() error {
		f.attached[r.Handle] = r.NodeID
		return nil
	})
}

func (f *fakeDriver) ControllerUnpublish(_ context.Context, handle, _ string, _ map[string]flex.Secret) error {
	return f.do("ControllerUnpublish", handle, func() error {
		if f.staged[handle] != "" {
			f.harm = append(f.harm, "detach under a stage: "+handle)
			return final(flex.CodeFailedPrecondition, "still staged")
		}
		delete(f.attached, handle)
		return nil
	})
}

func (f *fakeDriver) NodeStage(_ context.Context, r csivol.StageRequest) error {
	if f.hold != nil {
		<-f.hold
	}
	f.ask(r.Capability, r.Context)
	return f.do("NodeStage", r.Handle, func() error {
		if (f.features.Attach || f.inCluster) && (f.attached[r.Handle] == "" || r.PublishContext["device"] == "") {
			return final(flex.CodeFailedPrecondition, "not attached")
		}
		f.groups = append(f.groups, "stage:"+r.Capability.MountGroup)
		if f.staged[r.Handle] == "" { // as some drivers do: what is there is taken for right
			f.stagedFor = string(r.Secrets["key"].Reveal())
		}
		f.staged[r.Handle] = r.StagingPath
		f.mounts.set(f.stageMount(r.StagingPath, r.Handle), true)
		return nil
	})
}

func (f *fakeDriver) NodeUnstage(_ context.Context, handle, path string) error {
	return f.do("NodeUnstage", handle, func() error {
		if !f.features.Stage && !f.unstages {
			return final(flex.CodeUnimplemented, "no such RPC")
		}
		if slices.Contains(slices.Collect(maps.Values(f.published)), handle) {
			f.harm = append(f.harm, "unstage under a mount: "+handle)
			return final(flex.CodeInternal, "still published")
		}
		delete(f.staged, handle)
		f.mounts.set(f.stageMount(path, handle), f.leaves)
		return nil
	})
}

func (f *fakeDriver) NodePublish(_ context.Context, r csivol.PublishRequest) error {
	f.ask(r.Capability, r.Context)
	return f.do("NodePublish", r.Handle, func() error {
		if f.features.Stage && f.staged[r.Handle] != r.StagingPath {
			return final(flex.CodeFailedPrecondition, "not staged there")
		}
		if guarded, _ := f.mounts.Mounted(kubeletdir.Guard(r.TargetPath)); !guarded {
			return final(flex.CodeInternal, "the kubelet would delete what is in the volume")
		}
		f.groups = append(f.groups, "publish:"+r.Capability.MountGroup)
		f.context, f.staging = r.Context, r.StagingPath
		_, err := os.Lstat(r.TargetPath)
		f.made = err == nil
		f.published[r.TargetPath] = r.Handle
		f.mounts.set(r.TargetPath, false) // what is published is as the driver makes it
		f.mounts.set(r.TargetPath, !f.unseen)
		if f.between != nil {
			f.between()
		}
		return os.MkdirAll(r.TargetPath, 0o750)
	})
}

func (f *fakeDriver) NodeUnpublish(_ context.Context, handle, target string) error {
	return f.do("NodeUnpublish", handle, func() error {
		delete(f.published, target)
		f.mounts.set(target, false)
		return os.RemoveAll(target)
	})
}

func (f *fakeDriver) NodeExpand(_ context.Context, r csivol.ExpandRequest) error {
	return f.do("NodeExpand", r.Handle, func() error {
		if r.OnNodeOnly != !f.features.ControllerExpand {
			return final(flex.CodeInvalidArgument, "who is to verify the size?")
		}
		return nil
	})
}

func (f *fakeDriver) NodeStats(_ context.Context, handle, _, _ string) (s csivol.Stats, err error) {
	return s, f.do("NodeGetVolumeStats", handle, func() error {
		s.Bytes = csivol.Usage{Total: 100, Used: 30, Available: 70}
		return nil
	})
}

func (f *fakeDriver) ControllerExpand(_ context.Context, r csivol.ExpandRequest) (bool, error) {
	if r.Capability.AccessMode == "" {
		return false, final(flex.CodeInvalidArgument, "the capability has no access mode")
	}
	return true, f.do("ControllerExpand", r.Handle, func() error { return nil })
}

// clean reports what the driver still holds.
func (f *fakeDriver) clean() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.attached)+len(f.staged)+len(f.published) == 0 {
		return ""
	}
	return fmt.Sprintf("attached %v, staged %v, published %v", f.attached, f.staged, f.published)
}

func (f *fakeDriver) called() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := strings.Join(f.calls, " ")
	f.calls = nil
	return s
}

// fakeMounts is a mount table.
type fakeMounts struct {
	mu      sync.Mutex
	mounted map[string]bool
	fail    map[string]error // by method
	dead    map[string]error // by path
	locked  map[string]bool  // what is read-only
	binds   func()           // in Bind; nil: nothing
	// Of all filesystems.
	bytes, device int64
}

func (m *fakeMounts) set(path string, mounted bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if mounted {
		m.mounted[path] = true
	} else {
		delete(m.mounted, path)
		delete(m.locked, path)
		delete(m.dead, path)
	}
}

func (m *fakeMounts) Bind(_ context.Context, source, target string, _ bool) error {
	if err := m.fail["Bind"]; err != nil {
		return err
	}
	if m.binds != nil {
		m.binds()
	}
	if mounted, _ := m.Mounted(source); !mounted {
		return fmt.Errorf("nothing is mounted at %s: a pod would get the disk of the node", source)
	}
	m.set(target, true)
	return os.MkdirAll(target, 0o750)
}

func (m *fakeMounts) ReadOnly(_ context.Context, path string) error {
	if err := m.fail["ReadOnly"]; err != nil {
		return err
	}
	if mounted, _ := m.Mounted(path); !mounted {
		return fmt.Errorf("nothing is mounted at %s", path)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.locked[path] = true
	return nil
}

func (m *fakeMounts) Marker(_ context.Context, dir string) error {
	m.set(dir, true)
	return nil
}

func (m *fakeMounts) Guard(_ context.Context, target string) error {
	if err := m.fail["Guard"]; err != nil {
		return err
	}
	m.set(kubeletdir.Guard(target), true)
	return nil
}

func (m *fakeMounts) RemoveTarget(_ context.Context, target string) error {
	if err := m.fail["RemoveTarget"]; err != nil {
		return err
	}
	m.set(target, false)
	m.set(kubeletdir.Guard(target), false)
	kubeletdir.RemoveTarget(target, os.Remove)
	return nil
}

func (m *fakeMounts) Unmount(_ context.Context, path string) error {
	m.set(path, false)
	return nil
}

func (m *fakeMounts) Mounted(path string) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mounted[path], m.fail["Mounted "+path]
}

func (m *fakeMounts) Below(path string) (below []string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for mount := range m.mounted {
		if filepath.Dir(mount) == path && !m.mounted[path] {
			below = append(below, mount)
		}
	}
	return below, m.fail["Below "+path]
}

// SameFilesystem: of binds, unless a test says otherwise.
func (m *fakeMounts) SameFilesystem(a, b string) (bool, error) {
	if err := m.fail["SameFilesystem"]; err != nil {
		return false, err
	}
	one, _ := m.Mounted(a)
	other, _ := m.Mounted(b)
	return one && other, nil
}

func (m *fakeMounts) Size(path string) (fs, device int64, err error) {
	if mounted, _ := m.Mounted(path); !mounted {
		return 0, 0, fmt.Errorf("nothing is mounted at %s", path)
	}
	return m.bytes, m.device, m.fail["Size"]
}

func (m *fakeMounts) Healthy(path string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dead[path]
}

func (m *fakeMounts) SetGroup(context.Context, string, int64) error { return m.fail["SetGroup"] }
