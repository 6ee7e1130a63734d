package kube

import (
	"context"
	"sync"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/kubeobject"
)

// drivers are the CSIDriver objects: a few, which hardly ever change.
type drivers struct {
	mirror *mirror[*storagev1.CSIDriver]

	mu sync.Mutex
	// before is what the run before knew.
	before map[string]csivol.DriverInfo
}

func (c *Cluster) mirrorDrivers() {
	d := &c.drivers
	if c.options.StateFile != "" {
		before, err := readStateFile(c.options.StateFile)
		if err != nil {
			c.log.Error("what was known of CSI drivers is lost", "error", err)
		}
		d.before = before
	}
	d.mirror = newMirror(c.storage.CSIDrivers(), metav1.ListOptions{}, &storagev1.CSIDriver{},
		func(*storagev1.CSIDriver) {}, func(*storagev1.CSIDriver, bool) { c.keepDrivers() })
	if c.options.NoCSIDrivers {
		return
	}
	c.keep(d.mirror)
	if c.options.StateFile != "" {
		c.keep(whenSynced{d.mirror, c.keepDrivers})
	}
}

// whenSynced does something once.
type whenSynced struct {
	mirror *mirror[*storagev1.CSIDriver]
	do     func()
}

func (w whenSynced) run(ctx context.Context) {
	select {
	case <-w.mirror.controller.HasSyncedChecker().Done():
		w.do()
	case <-ctx.Done():
	}
}

// CSIDriver returns what the object of a CSI driver says, and whether there is
// one. Unless synced the API server has not answered yet, and this is what it
// said to the run before, if that is known.
func (c *Cluster) CSIDriver(name string) (info csivol.DriverInfo, found, synced bool) {
	if !c.drivers.mirror.synced() {
		c.drivers.mu.Lock()
		defer c.drivers.mu.Unlock()
		info, found = c.drivers.before[name]
		return info, found, false
	}
	o, found := c.drivers.mirror.get(name)
	if !found {
		return info, false, true
	}
	return kubeobject.DriverInfo(o), true, true
}

// keepDrivers writes down what is known, for the next run. Before all of them
// are known, what the run before knew is better.
func (c *Cluster) keepDrivers() {
	d := &c.drivers
	if c.options.StateFile == "" || !d.mirror.synced() {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	now := map[string]csivol.DriverInfo{}
	for _, o := range d.mirror.all() {
		now[o.Name] = kubeobject.DriverInfo(o)
	}
	if sameDrivers(now, d.before) {
		return
	}
	if err := writeStateFile(c.options.StateFile, now); err != nil {
		c.log.Error("what is known of CSI drivers is not kept", "error", err)
		return
	}
	d.before = now
}
