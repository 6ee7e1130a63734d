package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/volstate"
)

const directoryHandle = "one"

// directory is a CSI driver that binds a directory at the target path, without a
// stage: the least that a driver can mount. A driver that mounts nothing is no
// substitute: the bridge verifies that something is mounted there.
func directory() worldOptions {
	return worldOptions{
		driverArgs: []string{"--directories", "--no-stage", "--volume", directoryHandle + "=1Mi"},
	}
}

// bridged is a call with one RPC in it, against an empty program and the RPC.
func (b *bench) bridged() ([]row, error) {
	w, err := b.newBridgeWorld("bridge", directory())
	if err != nil {
		return nil, err
	}
	defer w.close()
	v, err := w.volume(directoryHandle)
	if err != nil {
		return nil, err
	}
	direct, err := w.direct(directoryHandle)
	if err != nil {
		return nil, err
	}
	direct.staging = "" // the driver has no stage
	pairs, err := b.compare(300, v.mountOnce, func() (cost, error) {
		c, err := b.node.empty.call()
		if err != nil {
			return c, err
		}
		rpc, err := direct.upOnce(b.ctx)
		return c.plus(rpc), err
	})
	if err != nil {
		return nil, err
	}
	return []row{{what: "bridged mount : empty program and the same RPC", figure: ratio(pairs, wall), unit: "x", goal: atMost(2), note: times(pairs, wall)}}, nil
}

// mountOnce mounts, and unmounts without counting it.
func (v volume) mountOnce() (cost, error) {
	c, err := v.mount()
	if err != nil {
		return c, err
	}
	_, err = v.unmount()
	return c, err
}

// bridgedTable compares nodes with little and with much on them.
func (b *bench) bridgedTable() ([]row, error) {
	few, many, closeBoth, err := twoNamespaces()
	if err != nil {
		return nil, err
	}
	defer closeBoth()
	var little, much *bridgeWorld
	err = few.do(func() (err error) {
		little, err = b.newBridgeWorld("little", directory())
		return err
	})
	if err != nil {
		return nil, err
	}
	defer func() { _ = few.do(func() error { little.close(); return nil }) }()
	err = many.do(func() (err error) {
		if err := mountMany(filepath.Join(b.node.dir, "many-bridged"), b.scale.mounts); err != nil {
			return err
		}
		o := directory()
		o.prepare = b.writeRecords
		much, err = b.newBridgeWorld("much", o)
		return err
	})
	if err != nil {
		return nil, err
	}
	defer func() { _ = many.do(func() error { much.close(); return nil }) }()
	return b.compareWorlds(few, many, little, much)
}

func (b *bench) compareWorlds(few, many *namespace, little, much *bridgeWorld) ([]row, error) {
	in := func(n *namespace, w *bridgeWorld) (measurement, error) {
		var v volume
		err := n.do(func() (err error) { v, err = w.volume(directoryHandle); return err })
		return func() (c cost, err error) {
			err = n.do(func() error { c, err = v.cycle(); return err })
			return c, err
		}, err
	}
	inLittle, errLittle := in(few, little)
	inMuch, errMuch := in(many, much)
	idle, errIdle := little.resident()
	full, errFull := much.resident()
	if err := errors.Join(errLittle, errMuch, errIdle, errFull); err != nil {
		return nil, err
	}
	pairs, err := b.compare(200, inMuch, inLittle)
	if err != nil {
		return nil, err
	}
	each := (full - idle) / float64(b.scale.records) / 1024
	return []row{
		{what: "bridged, 10,000 mounts and 5,000 records : few", figure: ratio(pairs, wall), unit: "x", goal: atMost(1.1), note: times(pairs, wall)},
		{what: "flex2csi resident, idle", figure: single(idle / (1 << 20)), unit: " MiB", goal: atMost(40), note: fmt.Sprintf("%.1f MiB with 5,000 volumes", full/(1<<20))},
		{what: "flex2csi resident, for each volume", figure: single(each), unit: " KiB", goal: atMost(4), note: "just restored"},
	}, nil
}

// writeRecords leaves those of volumes that pods have.
func (b *bench) writeRecords(stateDir string) error {
	store, err := volstate.Open(stateDir)
	if err != nil {
		return err
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return err
	}
	kubelet := filepath.Join(filepath.Dir(stateDir), "kubelet")
	for i := range b.scale.records {
		pod := fmt.Sprintf("%s/pods/0c9a7e6e-0000-4000-8000-%012d", kubelet, i)
		err := store.Put(&volstate.Record{
			BootID: string(bytes.TrimSpace(boot)), FlexDriver: bridgedFlexDriver, Driver: bridgedCSIDriver,
			Handle: fmt.Sprintf("vol-%016x", i), Name: fmt.Sprintf("pvc-%d", i), FSType: "ext4", AccessMode: csivol.ReadWriteOnce,
			Context: map[string]string{"pool": "fast", "image": fmt.Sprintf("image-%d", i)},
			Targets: map[string]*volstate.Target{pod + "/volumes/example.com~bridged/pv": {
				Pod: csivol.Pod{Name: "web-0", Namespace: "shop", UID: filepath.Base(pod)}, Publish: volstate.Done, Bound: true, Since: time.Now(),
			}},
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// buildBridge builds what only these rows need.
func (n *node) buildBridge(ctx context.Context) error {
	for what, to := range map[string]*string{"cmd/flex2csi": &n.flex2csi, "test/csidriver/cmd/csidriver": &n.csidriver} {
		*to = filepath.Join(n.dir, filepath.Base(what))
		if err := build(ctx, "github.com/flex2csi/flex2csi/"+what, *to, "-s -w"); err != nil {
			return err
		}
	}
	return nil
}
