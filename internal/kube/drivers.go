package kube

import (
	"context"
	"sync"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/kubeobject"
)

// drivers are the CSIDriver objects: few, and they rarely change.
type drivers struct {
	informer *informer[*storagev1.CSIDriver]

	mu sync.Mutex
	// before is from the file of the run before.
	before map[string]csivol.DriverInfo
}

func (c *Cluster) watchDrivers() {
	d := &c.drivers
	if c.options.StateFile != "" {
		before, err := readStateFile(c.options.StateFile)
		if err != nil {
			c.log.Error("the cache of CSIDriver objects cannot be read", "error", err)
		}
		d.before = before
	}
	d.informer = newInformer(c.storage.CSIDrivers(), metav1.ListOptions{}, &storagev1.CSIDriver{},
		func(*storagev1.CSIDriver) {}, func(*storagev1.CSIDriver, bool) { c.keepDrivers() })
	if c.options.NoCSIDrivers {
		return
	}
	c.keep(d.informer)
	if c.options.StateFile != "" {
		c.keep(whenSynced{d.informer, c.keepDrivers})
	}
}

// whenSynced calls a function once, when an informer has synced.
type whenSynced struct {
	informer *informer[*storagev1.CSIDriver]
	do       func()
}

func (w whenSynced) run(ctx context.Context) {
	select {
	case <-w.informer.controller.HasSyncedChecker().Done():
		w.do()
	case <-ctx.Done():
	}
}

// CSIDriver returns what the object of a CSI driver says, and whether it exists. If
// synced is false the API server has not answered yet, and the answer is from the
// cache of the run before.
func (c *Cluster) CSIDriver(name string) (info csivol.DriverInfo, found, synced bool) {
	if !c.drivers.informer.synced() {
		c.drivers.mu.Lock()
		defer c.drivers.mu.Unlock()
		info, found = c.drivers.before[name]
		return info, found, false
	}
	o, found := c.drivers.informer.get(name)
	if !found {
		return info, false, true
	}
	return kubeobject.DriverInfo(o), true, true
}

// keepDrivers writes the cache for the next run. Until all objects are known the cache
// of the run before is better.
func (c *Cluster) keepDrivers() {
	d := &c.drivers
	if c.options.StateFile == "" || !d.informer.synced() {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	now := map[string]csivol.DriverInfo{}
	for _, o := range d.informer.all() {
		now[o.Name] = kubeobject.DriverInfo(o)
	}
	if sameDrivers(now, d.before) {
		return
	}
	if err := writeStateFile(c.options.StateFile, now); err != nil {
		c.log.Error("the cache of CSIDriver objects cannot be written", "error", err)
		return
	}
	d.before = now
}
