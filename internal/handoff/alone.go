package handoff

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/internal/kubeletdir"
	"github.com/flex2csi/flex2csi/internal/mountcode"
	"github.com/flex2csi/flex2csi/internal/nodemounts"
	"github.com/flex2csi/flex2csi/internal/pendingunmount"
	"github.com/flex2csi/flex2csi/internal/wire"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// unmount must not depend on a service: no pod stays Terminating because a
// DaemonSet is being updated. That does not hold for unmountdevice, after which
// the volume may go to another node.
func (b *Backend) unmount(ctx context.Context, c *flex.Call) error {
	_, err := b.handOver(ctx, c)
	if !wire.IsAbsent(err) {
		return err
	}
	b.log().Warn("unmounting without flex2csi", "dir", c.Dir, "error", err)
	p, badPath := b.placeOf(c.Dir)
	if badPath != nil {
		return badPath
	}
	driver, err := b.name(c)
	if err != nil {
		return err
	}
	// First of all: killed after this, here or below, nothing is forgotten.
	pending := pendingunmount.Unmount{Driver: driver, Command: c.Command, Dir: c.Dir, Time: time.Now().UTC()}
	if err := pendingunmount.Write(b.StateDir, pending); err != nil {
		return flex.Errorf(flex.CodeUnavailable, "flex2csi does not listen at %s, and it cannot be left a note in %s that the volume is not wanted any more, without which nothing is unmounted: %w", b.Socket, b.StateDir, err)
	}
	if b.afterWrite != nil {
		b.afterWrite()
	}
	// A daemon that started meanwhile may have listed the pending unmounts before
	// this one was written, but then it listens by now.
	if _, err := b.send(ctx, c, wire.CallNow); !wire.IsAbsent(err) {
		return err
	}
	return b.takeDown(ctx, p)
}

// Owns reports whether what is mounted at a directory, which is to be unmounted,
// is the daemon's: a pod's has a private target, a device mount path a marker.
// It is for drivers that lost their configuration, or had another one when the volume
// was mounted.
func Owns(command flex.Command, dir string) bool {
	switch command {
	case flex.CommandUnmount:
		private, err := kubeletdir.PrivateTarget(dir)
		if err != nil {
			return false
		}
		_, err = os.Lstat(filepath.Dir(private))
		return err == nil
	case flex.CommandUnmountDevice:
		return nodemounts.IsMarker(dir)
	}
	return false
}

// place is what is mounted for one pod and volume.
type place struct {
	root, dir string
	private   string // empty if a CSI driver cannot have published there
}

func (b *Backend) placeOf(dir string) (place, error) {
	p := place{root: b.KubeletDir, dir: dir}
	at, err := kubeletdir.Parse(dir)
	if err == nil && p.root == "" {
		p.root = at.Root
	}
	if p.root == "" {
		return place{}, flex.Errorf(flex.CodeInvalidArgument, "%w; for another directory, by hand, give --kubelet-dir", err)
	}
	if private, err := kubeletdir.PrivateTarget(dir); err == nil {
		p.private = private
	}
	return p, nil
}

// takeDown removes all that is mounted of ours: first what the pod sees, then
// what the CSI driver has made. Each step can be repeated.
func (b *Backend) takeDown(ctx context.Context, p place) error {
	mounts := nodemounts.Mounts{Mounter: b.Mounter, KubeletDir: p.root}
	if err := mounts.Unmount(ctx, p.dir); err != nil {
		return mountcode.Of(err)
	}
	if p.private == "" {
		return nil
	}
	if err := mounts.Unmount(ctx, p.private); err != nil {
		return mountcode.Of(err)
	}
	kubeletdir.RemovePrivate(p.private, unix.Rmdir)
	return nil
}
