package local

import (
	"context"
	"errors"
	"io/fs"
	"time"

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

// openForTearDown returns nil if not even the directory above is there: then
// nothing can be mounted.
func (b *Backend) openForTearDown(ctx context.Context, dir string) (*place, error) {
	p, err := b.open(ctx, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return p, err
}

func (b *Backend) takeDown(ctx context.Context, p *place) error {
	if err := b.Mounter.Unmount(ctx, p.Target); err != nil {
		return coded(err)
	}
	b.log().Info("unmounted", "dir", p.Path())
	return nil
}

// releaseWait is how long a device may stay in use after its last mount that
// we see is gone. Some filesystems end in the background.
const releaseWait = 5 * time.Second

// unmountDevice takes a disk down at its device mount path, and answers
// success only when the disk is free: the next thing that may happen is that
// another node gets it.
func (b *Backend) unmountDevice(ctx context.Context, c *flex.Call) error {
	p, err := b.openForTearDown(ctx, c.Dir)
	if err != nil || p == nil {
		return err
	}
	defer p.close()
	info, err := p.Info()
	if err != nil || info == nil {
		return coded(err)
	}
	backing := mounter.BackingFile(info.Source)
	if err := b.takeDown(ctx, p); err != nil {
		return err
	}
	if !isBlockDevice(info.Source) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, releaseWait)
	defer cancel()
	return coded(mounter.WaitDetached(ctx, info.Source, backing))
}
