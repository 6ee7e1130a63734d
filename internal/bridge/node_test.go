package bridge_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/flex2csi/flex2csi/internal/bridge"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// node is a bridge with a fake driver and a real store.
type node struct {
	t      *testing.T
	dir    string
	bridge *bridge.Bridge
	driver *fakeDriver
	mounts *fakeMounts
	store  *volstate.Store

	mayBeBroken bool
	dirs        bridge.Dirs // nil: those of the machine
	pending     bridge.PendingUnmounts
	// removed is not nil if the driver is not in the configuration any more.
	removed func(flexDriver, csiDriver string, at csivol.Endpoints) *bridge.FlexDriver
}

const flexDriver = "example.com/disk"

func newNode(t *testing.T) *node {
	t.Helper()
	m := &fakeMounts{mounted: map[string]bool{}, fail: map[string]error{}, dead: map[string]error{}, locked: map[string]bool{}}
	n := &node{t: t, dir: t.TempDir(), driver: newFakeDriver(m), mounts: m}
	n.start("boot-1")
	return n
}

// start is a new process: it knows what is on the disk.
func (n *node) start(boot string) {
	n.t.Helper()
	store, err := volstate.Open(filepath.Join(n.dir, "state"))
	if err != nil {
		n.t.Fatal(err)
	}
	records, broken, err := store.Load()
	if err != nil || (len(broken) > 0 && !n.mayBeBroken) {
		n.t.Fatal(err, broken)
	}
	n.store = store
	n.bridge = &bridge.Bridge{
		Context: n.t.Context(), Mounts: n.mounts, Dirs: n.dirs, State: store, PendingUnmounts: n.pending,
		KubeletDir: n.dir, NodeName: "node-1", BootID: boot,
		Drivers: bridge.Drivers{All: []*bridge.FlexDriver{{Name: flexDriver, CSIDriver: "csi.example.com", Service: n.driver, Map: mapOptions}}},
	}
	if n.bridge.Removed = n.removed; n.removed != nil {
		n.bridge.Drivers.All = nil
	}
	n.bridge.Restore(records)
}

// fixed is a policy that does not change.
func fixed(p bridge.Policy) func(context.Context) (bridge.Policy, error) {
	return func(context.Context) (bridge.Policy, error) { return p, nil }
}

// withModes maps as where the PersistentVolume could be read, and has modes.
func withModes(modes ...csivol.AccessMode) func(context.Context, flex.Options) (*csivol.Volume, error) {
	return func(ctx context.Context, o flex.Options) (*csivol.Volume, error) {
		v, err := mapOptions(ctx, o)
		v.AccessMode, v.AccessModes = "", modes
		if len(modes) > 0 {
			v.AccessMode = modes[0]
		}
		return v, err
	}
}

func mapOptions(_ context.Context, o flex.Options) (*csivol.Volume, error) {
	return &csivol.Volume{
		FlexDriver: flexDriver, Driver: "csi.example.com", Handle: o.User["volumeHandle"], Name: o.VolumeName,
		FSType: o.FSType, AccessMode: csivol.ReadWriteOnce, ReadOnly: o.ReadOnly, FSGroup: o.FSGroup,
	}, nil
}

func (n *node) podDir(pod string) string {
	dir := filepath.Join(n.dir, "pods", pod, "volumes/example.com~disk/pv1")
	if err := os.MkdirAll(filepath.Dir(dir), 0o750); err != nil {
		n.t.Fatal(err)
	}
	return dir
}

func (n *node) deviceDir() string {
	return filepath.Join(n.dir, "plugins/kubernetes.io/flexvolume/example.com/disk/mounts/pv1")
}

const options = `{"volumeHandle":"h1","kubernetes.io/fsType":"ext4","kubernetes.io/readwrite":"rw","kubernetes.io/pvOrVolumeName":"pv1"}`

// call makes a callout as the daemon does.
func (n *node) call(args ...string) flex.DriverStatus {
	d, err := n.bridge.Callouts(flexDriver)
	if err != nil {
		return flex.Failure(err)
	}
	return flex.Run(n.t.Context(), d, args)
}

func (n *node) succeed(args ...string) {
	n.t.Helper()
	if s := n.call(args...); s.Status != flex.StatusSuccess {
		n.t.Fatalf("%v: %s %s", args, s.Status, s.Message)
	}
}

// empty checks that nothing is left anywhere.
func (n *node) empty() {
	n.t.Helper()
	if left := n.driver.clean(); left != "" {
		n.t.Errorf("the driver still has: %s", left)
	}
	n.mounts.mu.Lock()
	defer n.mounts.mu.Unlock()
	if len(n.mounts.mounted) > 0 {
		n.t.Errorf("still mounted: %v", n.mounts.mounted)
	}
	if records, _, _ := n.store.Load(); len(records) > 0 {
		n.t.Errorf("records are left: %+v", records[0])
	}
}

// recording keeps a copy of every record that is written.
type recording struct {
	bridge.RecordStore
	records []*volstate.Record
	stop    int // the process ends with this write; 0: never
}

func (r *recording) Put(record *volstate.Record) error {
	if r.stop > 0 && len(r.records) >= r.stop {
		return errKilled
	}
	r.records = append(r.records, record.Clone())
	return r.RecordStore.Put(record)
}

func (r *recording) Delete(k csivol.Key) error {
	if r.stop > 0 && len(r.records) >= r.stop {
		return errKilled
	}
	return r.RecordStore.Delete(k)
}

var errKilled = errors.New("killed")
