package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"sync"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/hostfile"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// drivers are the CSIDriver objects: few, and they rarely change.
type drivers struct {
	informer *informer

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
	d.informer = newInformer(c.storage.CSIDrivers(), metav1.ListOptions{}, &storagev1.CSIDriver{}, nil, nil)
	if c.options.NoCSIDrivers {
		return
	}
	c.keep(d.informer.run)
	if c.options.StateFile == "" {
		return
	}
	_, _ = d.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{ // it fails after the end
		AddFunc:    func(any) { c.keepDrivers() },
		UpdateFunc: func(any, any) { c.keepDrivers() },
		DeleteFunc: func(any) { c.keepDrivers() },
	})
	c.keep(func(ctx context.Context) {
		select {
		case <-d.informer.HasSyncedChecker().Done():
		case <-ctx.Done():
		}
		c.keepDrivers() // there may be no events, or none yet
	})
}

// list is the cache.
func (d *drivers) list() storagelisters.CSIDriverLister {
	return storagelisters.NewCSIDriverLister(d.informer.GetIndexer())
}

// CSIDriver returns what the object of a CSI driver says, and whether it exists. If
// synced is false the API server has not answered yet, and the answer is from the
// cache of the run before.
func (c *Cluster) CSIDriver(name string) (info csivol.DriverInfo, found, synced bool) {
	if !c.drivers.informer.HasSynced() {
		c.drivers.mu.Lock()
		defer c.drivers.mu.Unlock()
		info, found = c.drivers.before[name]
		return info, found, false
	}
	o, err := c.drivers.list().Get(name)
	if err != nil {
		return info, false, true // there is none
	}
	return objects.DriverInfo(o), true, true
}

// keepDrivers writes the cache for the next run. Until all objects are known the cache
// of the run before is better.
func (c *Cluster) keepDrivers() {
	d := &c.drivers
	if !d.informer.HasSynced() {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	now := map[string]csivol.DriverInfo{}
	all, _ := d.list().List(labels.Everything()) // of memory, without an error
	for _, o := range all {
		now[o.Name] = objects.DriverInfo(o)
	}
	if reflect.DeepEqual(now, d.before) {
		return
	}
	if err := writeStateFile(c.options.StateFile, now); err != nil {
		c.log.Error("the cache of CSIDriver objects cannot be written", "error", err)
		return
	}
	d.before = now
}

// stateFile is the cache for a run that starts while the API server is unavailable.
type stateFile struct {
	Version int                          `json:"version"`
	Drivers map[string]csivol.DriverInfo `json:"csiDrivers"`
}

const (
	stateVersion = 1
	maxStateFile = 1 << 20
)

// readStateFile returns the content of the cache, if it exists. A file of another
// release is no error: it will be overwritten.
func readStateFile(path string) (map[string]csivol.DriverInfo, error) {
	var s stateFile
	if err := readCache(path, maxStateFile, &s); err != nil || s.Version != stateVersion {
		return nil, err
	}
	return s.Drivers, nil
}

// readCache reads a file with at most limit bytes. If there is none, content stays as it
// is.
func readCache(path string, limit int64, content any) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Size() > limit:
		return fmt.Errorf("%s is larger than %d bytes", path, limit)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, content); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// writeStateFile replaces the file in one step.
func writeStateFile(path string, drivers map[string]csivol.DriverInfo) error {
	data, err := json.MarshalIndent(stateFile{stateVersion, drivers}, "", "  ")
	if err != nil {
		return err
	}
	return hostfile.WriteFile(path, append(data, '\n'))
}
