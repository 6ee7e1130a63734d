package handoff

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/flex2csi/flex2csi/internal/kubeletdir"
	"github.com/flex2csi/flex2csi/internal/nodemounts"
	"github.com/flex2csi/flex2csi/internal/statedir"
	"github.com/flex2csi/flex2csi/internal/wire"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// unmount works without the daemon: no pod stays Terminating because a DaemonSet is being
// updated. unmountdevice does not, since the volume may be attached to another node after
// it.
func (b *Backend) unmount(ctx context.Context, c *flex.Call) error {
	_, err := b.handOver(ctx, c, wire.Call)
	if !wire.IsAbsent(err) {
		return err
	}
	b.log().Warn("unmounting without flex2csi", "error", err)
	p, badPath := b.placeOf(c.Dir)
	if badPath != nil {
		return badPath
	}
	driver, err := b.name(c)
	if err != nil {
		return err
	}
	// First: a kill after this leaves the pending unmount.
	pending := statedir.PendingUnmount{Driver: driver, Command: c.Command, Dir: c.Dir, Time: time.Now().UTC()}
	if err := statedir.WritePendingUnmount(b.StateDir, pending); err != nil {
		return flex.Errorf(flex.CodeUnavailable, "flex2csi does not listen at %s, and it cannot be left a note in %s that the volume is not wanted any more, without which nothing is unmounted: %w", b.Socket, b.StateDir, err)
	}
	if b.afterWrite != nil {
		b.afterWrite()
	}
	// A daemon that started meanwhile may have listed the pending unmounts before this
	// one was written, but then it listens by now.
	if _, err := b.handOver(ctx, c, wire.CallNow); !wire.IsAbsent(err) {
		return err
	}
	return b.takeDown(ctx, p)
}

// Owns reports whether the mount at a directory is the daemon's: a pod's volume directory
// has a target path of its own, a device mount path has a marker. It is for drivers that lost their
// configuration, or had another one when the volume was mounted.
func Owns(command flex.Command, dir string) bool {
	switch command {
	case flex.CommandUnmount:
		targetPath, err := kubeletdir.TargetPath(dir)
		if err != nil {
			return false
		}
		_, err = os.Lstat(filepath.Dir(targetPath))
		return err == nil
	case flex.CommandUnmountDevice:
		return nodemounts.IsMarker(dir)
	}
	return false
}

// place has the paths of a pod's mount of a volume.
type place struct {
	root, dir  string
	targetPath string // empty if a CSI driver cannot have published there
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
	if targetPath, err := kubeletdir.TargetPath(dir); err == nil {
		p.targetPath = targetPath
	}
	return p, nil
}

// takeDown removes our mounts: first the pod's, then the CSI driver's. Each step can be
// repeated.
func (b *Backend) takeDown(ctx context.Context, p place) error {
	mounts := nodemounts.Mounts{Mounter: b.Mounter, KubeletDir: p.root}
	if err := mounts.Unmount(ctx, p.dir); err != nil {
		return nodemounts.WithCode(err)
	}
	if p.targetPath == "" {
		return nil
	}
	// The daemon may have been killed during NodePublishVolume, which the driver may still
	// complete: into the guard, where no kubelet deletes it. The daemon removes that.
	published, err := mounts.Mounted(p.targetPath)
	if err == nil && !published {
		var guarded bool
		if guarded, err = mounts.Mounted(kubeletdir.Guard(p.targetPath)); guarded {
			return nil
		}
	}
	if err == nil {
		err = mounts.RemoveTarget(ctx, p.targetPath)
	}
	return nodemounts.WithCode(err)
}
