package local

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/internal/nodemounts"
	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/pkg/mounter"
)

// unmount takes a volume down at a pod's directory. It needs no options, no
// configuration and no memory: the kernel ends the filesystem with its last
// mount, and the loop device with the filesystem.
func (b *Backend) unmount(ctx context.Context, c *flex.Call) error {
	p, err := b.openForTearDown(ctx, c.Dir)
	if err != nil || p == nil {
		return err
	}
	defer p.close()
	return b.takeDown(ctx, p)
}

// openForTearDown returns nil if the parent directory does not exist: then nothing can
// be mounted. If the kubelet's disk is full or read-only there is no lock, and it goes
// on without one: pods have to be removed in that case.
func (b *Backend) openForTearDown(ctx context.Context, dir string) (*lockedTarget, error) {
	p, err := b.openUnlocked(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	p.lock, err = lock(ctx, p.root, "target "+dir)
	if errors.Is(err, unix.EROFS) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, fs.ErrPermission) {
		b.log().Warn("unmounting without a lock", "error", err)
		err = nil
	}
	if err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (b *Backend) takeDown(ctx context.Context, p *lockedTarget) error {
	if err := b.Mounter.Unmount(ctx, p.Target); err != nil {
		return nodemounts.WithCode(err)
	}
	b.log().Info("unmounted")
	return nil
}

// releaseWait is how long a device may stay in use after its last mount that
// we see is gone. Some filesystems end in the background.
const releaseWait = 5 * time.Second

// unmountDevice unmounts a disk at its device mount path. It succeeds only when the
// disk is free, since another node may get it next.
func (b *Backend) unmountDevice(ctx context.Context, c *flex.Call) error {
	p, err := b.openForTearDown(ctx, c.Dir)
	if err != nil || p == nil {
		return err
	}
	defer p.close()
	info, err := p.Info()
	if err != nil || info == nil {
		return nodemounts.WithCode(err)
	}
	backing := mounter.BackingFile(info.Source)
	if err := b.takeDown(ctx, p); err != nil {
		return err
	}
	if !isBlockDevice(info.Source) {
		return nil
	}
	waitCtx, cancel := context.WithTimeout(ctx, releaseWait)
	defer cancel()
	err = mounter.WaitDetached(waitCtx, info.Source, backing)
	if err != nil {
		b.putBack(ctx, p, info)
	}
	return nodemounts.WithCode(err)
}

// putBack mounts a disk again that could not be released. Without the mount the kubelet
// and this driver would take the next unmountdevice for done.
func (b *Backend) putBack(ctx context.Context, p *lockedTarget, info *mounter.Info) {
	d := mounter.Disk{Device: info.Source, FSType: info.FSType, ReadOnly: slices.Contains(strings.Split(info.Options, ","), "ro")}
	if err := b.Mounter.MountDisk(ctx, d, p.Target, nil); err != nil {
		b.log().Warn("could not mount a device again that is still in use", "device", info.Source, "error", err)
	}
}
