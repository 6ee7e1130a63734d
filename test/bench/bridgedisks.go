package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/internal/csivol"
)

// bridgedDisks are volumes of the project's CSI driver, disk images on loop
// devices, against the same RPCs made directly.
func (b *bench) bridgedDisks() ([]row, error) {
	if unix.Access("/dev/loop-control", unix.R_OK|unix.W_OK) != nil {
		return nil, nil // loop devices are for root only
	}
	o := worldOptions{}
	for i := range b.scale.disks {
		o.driverArgs = append(o.driverArgs, "--volume", fmt.Sprintf("d%d=16Mi", i))
	}
	w, err := b.newBridgeWorld("disks", o)
	if err != nil {
		return nil, err
	}
	defer w.close()
	direct, err := w.formatted(b.ctx, b.scale.disks)
	if err != nil {
		return nil, err
	}
	v, err := w.volume("d0")
	if err != nil {
		return nil, err
	}
	pairs, err := b.compare(100, v.mountOnce, func() (cost, error) { return direct[1].upOnce(b.ctx) })
	if err != nil {
		return nil, err
	}
	writes, err := w.recordWrites(v)
	if err != nil {
		return nil, err
	}
	many, err := b.compare(5, func() (cost, error) { return b.side(func(i int) error { return w.life(i) }) },
		func() (cost, error) { return b.side(func(i int) error { return direct[i].life(b.ctx) }) })
	if err != nil {
		return nil, err
	}
	return []row{
		{what: "bridged mount of a disk : its RPCs", figure: ratio(pairs, wall), unit: "x", goal: atMost(1.2), note: times(pairs, wall) + writes},
		{what: "1,000 disks up and down, 16 at a time : their RPCs", figure: ratio(many, wall), unit: "x", goal: atMost(1.25), note: times(many, wall) + " for 250"},
	}, nil
}

// side runs a quarter of the lives, sixteen at a time, each on a volume of its own
// at any moment.
func (b *bench) side(life func(volume int) error) (cost, error) {
	var group sync.WaitGroup
	errs := make(chan error, inFlight)
	start := time.Now()
	for worker := range inFlight {
		group.Go(func() {
			for n := worker; n < b.scale.lives; n += inFlight {
				if err := life(n % b.scale.disks); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	group.Wait()
	close(errs)
	return cost{wall: time.Since(start)}, <-errs
}

// life is one of a disk behind the bridge.
func (w *bridgeWorld) life(i int) error {
	v, err := w.volume("d" + strconv.Itoa(i))
	if err != nil {
		return err
	}
	_, err = v.cycle()
	return err
}

// A directVolume is a volume without the bridge.
type directVolume struct {
	world           *bridgeWorld
	handle          string
	staging, target string // no staging: of a driver without NodeStageVolume
}

func (w *bridgeWorld) direct(handle string) (directVolume, error) {
	dir := w.path("direct/" + handle)
	return directVolume{w, handle, filepath.Join(dir, "staging"), filepath.Join(dir, "target")}, os.MkdirAll(dir, 0o750)
}

// formatted gives each disk its filesystem, and returns them.
func (w *bridgeWorld) formatted(ctx context.Context, disks int) (all []directVolume, err error) {
	for i := range disks {
		d, err := w.direct("d" + strconv.Itoa(i))
		if err != nil {
			return nil, err
		}
		if err := d.life(ctx); err != nil {
			return nil, err
		}
		all = append(all, d)
	}
	return all, nil
}

func (d directVolume) up(ctx context.Context) error {
	capability := csivol.Capability{FSType: "ext4", AccessMode: csivol.ReadWriteOnce}
	if d.staging != "" {
		if err := os.MkdirAll(d.staging, 0o750); err != nil {
			return err
		}
		if err := d.world.csi.NodeStage(ctx, csivol.StageRequest{Handle: d.handle, StagingPath: d.staging, Capability: capability}); err != nil {
			return err
		}
	}
	return d.world.csi.NodePublish(ctx, csivol.PublishRequest{Handle: d.handle, StagingPath: d.staging, TargetPath: d.target, Capability: capability})
}

func (d directVolume) down(ctx context.Context) error {
	if err := d.world.csi.NodeUnpublish(ctx, d.handle, d.target); err != nil || d.staging == "" {
		return err
	}
	return d.world.csi.NodeUnstage(ctx, d.handle, d.staging)
}

func (d directVolume) life(ctx context.Context) error {
	if err := d.up(ctx); err != nil {
		return err
	}
	return d.down(ctx)
}

func (d directVolume) upOnce(ctx context.Context) (cost, error) {
	start := time.Now()
	if err := d.up(ctx); err != nil {
		return cost{}, err
	}
	c := cost{wall: time.Since(start)}
	return c, d.down(ctx)
}

// recordWrites counts what a mount and its unmount write down: each write is
// synced, and then its directory.
func (w *bridgeWorld) recordWrites(v volume) (string, error) {
	watch, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return "", err
	}
	defer unix.Close(watch)
	if _, err := unix.InotifyAddWatch(watch, w.path("state"), unix.IN_CREATE); err != nil {
		return "", err
	}
	if _, err := v.mount(); err != nil {
		return "", err
	}
	up, err := drain(watch)
	if err != nil {
		return "", err
	}
	if _, err := v.unmount(); err != nil {
		return "", err
	}
	down, err := drain(watch)
	return fmt.Sprintf("; record written %d times (2 fsyncs each), at unmount %d and removed (1)", up, down), err
}

// drain counts the files with names of their own that were begun: each write
// is one, renamed when it is on the disk. (Of the renames the kernel makes one
// event, since they have one name.)
func drain(watch int) (n int, err error) {
	buf := make([]byte, 1<<16)
	size, err := unix.Read(watch, buf)
	if err != nil {
		return 0, fmt.Errorf("nothing was written down: %w", err)
	}
	for at := 0; at < size; {
		length := int(binary.NativeEndian.Uint32(buf[at+12:]))
		name := strings.TrimRight(string(buf[at+unix.SizeofInotifyEvent:][:length]), "\x00")
		if strings.HasPrefix(name, ".") && !strings.HasSuffix(name, "~") { // which is a second name
			n++
		}
		at += unix.SizeofInotifyEvent + length
	}
	return n, nil
}
