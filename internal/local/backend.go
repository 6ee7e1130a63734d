package local

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/flex2csi/flex2csi/internal/kubeletdir"
	"github.com/flex2csi/flex2csi/internal/nodemounts"
	"github.com/flex2csi/flex2csi/internal/statedir"
	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/pkg/mounter"
)

// A Backend mounts local volumes for one driver. All fields may be empty; it
// allows no volumes but those in memory then, and none with a size.
type Backend struct {
	// Mounter makes the mounts.
	Mounter mounter.Mounter
	// KubeletDir is the kubelet's root directory; empty: it is read off the
	// paths that the kubelet passes.
	KubeletDir string
	// DirectoryRoots, ImageRoots and DeviceRoots are the directories below
	// which volumes with path, image and device may lie, and SourceTypes the
	// types of filesystems that those with source may have; see permit.
	DirectoryRoots, ImageRoots, DeviceRoots, SourceTypes []string
	// MaxSize is the most bytes that an image or a memory volume is created
	// with or grown to.
	MaxSize int64
	// MaxSizePerNamespace and MaxImagesPerNamespace bound all images of a namespace below
	// a root: their bytes and their number.
	MaxSizePerNamespace   int64
	MaxImagesPerNamespace int
	// ApplyFSGroup makes mount give the volume to the pod's fsGroup.
	ApplyFSGroup bool
	// AttachLocks is the directory of attachment locks: the driver's directory.
	// Empty: there are no locks.
	AttachLocks statedir.AttachLocks
	// Log is optional.
	Log *slog.Logger
}

// Driver returns the driver for flex.Run.
func (b *Backend) Driver() *flex.Driver { return &flex.Driver{Handle: b.handle, Plan: b.Plan} }

func (b *Backend) handle(ctx context.Context, c *flex.Call) (answer flex.DriverStatus, err error) {
	answer = flex.Success()
	switch c.Command {
	case flex.CommandAttach:
		answer.Device, err = b.attach(ctx, c)
	case flex.CommandIsAttached:
		answer.Attached, err = new(true), b.renewAttach(ctx, c)
	case flex.CommandDetach:
		err = b.detach(ctx, c)
	case flex.CommandWaitForAttach:
		answer.Device, err = b.waitForAttach(ctx, c)
	case flex.CommandMountDevice:
		err = b.mountDevice(ctx, c)
	case flex.CommandMount:
		err = b.mount(ctx, c)
	case flex.CommandUnmount:
		err = b.unmount(ctx, c)
	case flex.CommandUnmountDevice:
		err = b.unmountDevice(ctx, c)
	case flex.CommandExpandVolume:
		err = b.expandVolume(ctx, c)
	case flex.CommandExpandFS:
		err = b.expandFS(ctx, c)
	default:
		return flex.DriverStatus{}, errors.ErrUnsupported
	}
	return answer, err
}

func (b *Backend) log() *slog.Logger {
	if b.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return b.Log
}

// A lockedTarget is a mount point that was opened and locked: no other call works
// on the same one.
type lockedTarget struct {
	*mounter.Target
	root string
	lock *mounter.Lock
}

func (p *lockedTarget) close() {
	if p.lock != nil {
		p.lock.Close()
	}
	p.Target.Close()
}

// open checks, opens and locks a mount point.
func (b *Backend) open(ctx context.Context, dir string) (*lockedTarget, error) {
	p, err := b.openUnlocked(dir)
	if err != nil {
		return nil, err
	}
	if p.lock, err = lock(ctx, p.root, "target "+dir); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (b *Backend) openUnlocked(dir string) (*lockedTarget, error) {
	root, err := b.root(dir)
	if err != nil {
		return nil, err
	}
	target, err := mounter.OpenTarget(kubeletdir.LinksTo(root, dir), dir)
	if err != nil {
		return nil, nodemounts.WithCode(err)
	}
	return &lockedTarget{Target: target, root: root}, nil
}

// root is the kubelet's directory, which dir must lie below.
func (b *Backend) root(dir string) (string, error) {
	if b.KubeletDir != "" {
		return b.KubeletDir, nil // mounter.OpenTarget checks the rest
	}
	parsed, err := kubeletdir.Parse(dir)
	if err != nil {
		return "", flex.Errorf(flex.CodeInvalidArgument, "%w; for another directory, by hand, give --kubelet-dir", err)
	}
	return parsed.Root, nil
}

// lock locks a name among all calls for this kubelet.
func lock(ctx context.Context, root, name string) (*mounter.Lock, error) {
	file := kubeletdir.LockFile(root)
	f, err := mounter.LockName(ctx, file, name)
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
			return nil, flex.Errorf(flex.CodeInternal, "make room for the lock file %s: %w", file, err)
		}
		f, err = mounter.LockName(ctx, file, name)
	}
	if err != nil {
		return nil, nodemounts.WithCode(&mounter.Error{Op: "lock", Target: name, Err: err})
	}
	return f, nil
}
