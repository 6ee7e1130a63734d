package local

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/flex2csi/flex2csi/internal/allow"
	"github.com/flex2csi/flex2csi/internal/kubeletdir"
	"github.com/flex2csi/flex2csi/internal/nodemounts"
	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/pkg/mounter"
)

// mount sets a volume up at a pod's directory. With attach:true mountdevice
// has done the same at the device mount path; the kernel shares what is
// mounted, so there is nothing to hand over and nothing to look up.
func (b *Backend) mount(ctx context.Context, c *flex.Call) error {
	v, err := parseVolume(c.Options)
	if err != nil {
		return err
	}
	if err := requireNamespace(v, c.Options); err != nil {
		return err
	}
	return b.setUp(ctx, v, c)
}

// mountDevice sets a device up at its device mount path. Other volumes have no
// use for one: they are mounted for each pod. Images are among those since the
// call does not pass the namespace to which they belong: see permit.
func (b *Backend) mountDevice(ctx context.Context, c *flex.Call) error {
	v, err := parseVolume(c.Options)
	if err != nil {
		return err
	}
	if v.Kind != kindDevice {
		if _, err := b.root(c.Dir); err != nil {
			return err
		}
		return b.permit(v, c.Options)
	}
	return b.setUp(ctx, v, c)
}

// setUp mounts v at the call's directory. After an error nothing is mounted
// there that was not mounted before.
func (b *Backend) setUp(ctx context.Context, v *Volume, c *flex.Call) error {
	if err := b.permit(v, c.Options); err != nil {
		return err
	}
	p, err := b.open(ctx, c.Dir)
	if err != nil {
		return err
	}
	defer p.close()
	done, err := b.reuseOrRemove(ctx, v, p)
	if err != nil || done {
		return nodemounts.WithCode(err)
	}
	if err := p.Create(); err != nil {
		return nodemounts.WithCode(err)
	}
	err = b.mountVolume(ctx, v, p, c.Options)
	if errors.Is(err, mounter.ErrOccupied) { // meanwhile: the mount program of a call that was killed lived on
		if done, _ := b.reuseOrRemove(ctx, v, p); done {
			return nil
		}
	}
	if err != nil {
		p.Discard()
		return nodemounts.WithCode(err)
	}
	b.log().Info("mounted", "kind", string(v.Kind), "source", v.Source, "readOnly", v.ReadOnly)
	return nil
}

func (b *Backend) mountVolume(ctx context.Context, v *Volume, p *lockedTarget, o flex.Options) error {
	switch v.Kind {
	case kindImage:
		return b.mountImage(ctx, v, p, o)
	case kindDevice:
		return b.mountBlockDevice(ctx, v, p, o)
	case kindSource:
		return b.mountRemote(ctx, v, p, o)
	case kindPath:
		return b.Mounter.Bind(ctx, v.Source, b.directories(), p.Target, v.options(), b.owner(ctx, v, o))
	}
	return b.Mounter.Memory(ctx, v.Size, p.Target, v.options(), b.owner(ctx, v, o))
}

// options are the mount options with the read-only flag among them.
func (v *Volume) options() []string {
	if v.ReadOnly {
		return append(slices.Clone(v.MountOptions), "ro")
	}
	return v.MountOptions
}

// owner returns the step that gives the volume to the pod's fsGroup, or nil.
// It runs before the mount is visible: the kubelet takes a visible mount for
// complete, and would not call again for the group.
func (b *Backend) owner(ctx context.Context, v *Volume, o flex.Options) func(*os.File) error {
	if !b.ApplyFSGroup || o.FSGroup == nil || v.ReadOnly {
		return nil
	}
	return func(root *os.File) error { return b.Mounter.SetGroup(ctx, root, int(*o.FSGroup)) }
}

func (b *Backend) mountBlockDevice(ctx context.Context, v *Volume, p *lockedTarget, o flex.Options) error {
	d, unlock, err := b.openDevice(ctx, v, p.root)
	if err != nil {
		return err
	}
	defer unlock()
	return b.Mounter.MountDisk(ctx, v.ownDisk(d.Path, p.root), p.Target, b.owner(ctx, v, o))
}

// openDevice finds a device and locks it. No call has it open while it waits for the
// lock: the one that has the lock would take that for a use.
func (b *Backend) openDevice(ctx context.Context, v *Volume, root string) (d *mounter.BlockDevice, unlock func(), err error) {
	d, err = b.findDevice(ctx, v.Source)
	if err != nil {
		return nil, nil, err
	}
	key := d.Key()
	d.Close()
	locked, err := lock(ctx, root, key)
	if err != nil {
		return nil, nil, err
	}
	if d, err = b.findDevice(ctx, v.Source); err != nil {
		locked.Close()
		return nil, nil, err
	}
	unlock = func() { locked.Close(); d.Close() }
	if d.Key() != key {
		unlock()
		return nil, nil, flex.Errorf(flex.CodeAborted, "device %s: it has become another device meanwhile; mount is tried again", v.Source)
	}
	return d, unlock, nil
}

// openUnused opens a device that has no use but volumes of the kubelet.
func (b *Backend) openUnused(ctx context.Context, v *Volume, dir string) (*mounter.BlockDevice, error) {
	d, err := b.findDevice(ctx, v.Source)
	if err != nil {
		return nil, err
	}
	root, _ := b.root(dir) // expandvolume has no directory
	if err := v.ownDisk(d.Path, root).CheckUse(ctx); err != nil {
		d.Close()
		return nil, nodemounts.WithCode(err)
	}
	return d, nil
}

// ownDisk is a device that is shared with other pods and with nothing else.
// The mount table has the path that a link in the place of pods leads to.
func (v *Volume) ownDisk(device, root string) mounter.Disk {
	d := v.disk(device)
	d.Shares = func(mountpoint string) bool {
		if kubeletdir.IsVolume(mountpoint) {
			return true
		}
		pods, err := filepath.EvalSymlinks(filepath.Join(root, "pods"))
		rel, below := strings.CutPrefix(mountpoint, pods+"/")
		return err == nil && below && kubeletdir.IsVolume(filepath.Join(root, "pods", rel))
	}
	return d
}

func (v *Volume) disk(device string) mounter.Disk {
	return mounter.Disk{Device: device, FSType: v.FSType, FSTypes: allow.DiskTypes(), Options: v.MountOptions, ReadOnly: v.ReadOnly}
}

const (
	// healthWait is how long a filesystem may take to tell that it is alive.
	healthWait = 2 * time.Second
	// removeWait is how long the removal of one that is not may take.
	removeWait = 10 * time.Second
)

// reuseOrRemove looks at what is mounted at p already. A healthy mount of the
// same volume is from an earlier call; a dead mount is removed. Another mount, or one
// that may answer again, stays.
func (b *Backend) reuseOrRemove(ctx context.Context, v *Volume, p *lockedTarget) (done bool, err error) {
	info, err := p.Info()
	if err != nil || info == nil {
		return false, err
	}
	why := p.Health(ctx, healthWait)
	if errors.Is(why, mounter.ErrSilent) {
		return false, flex.Errorf(flex.CodeUnavailable, "%s is mounted at %s already, and %w; it is left as it is, and mount is tried again", mounter.Describe(info), p.Path(), why)
	}
	if why != nil {
		b.log().Warn("removing a dead mount", "was", mounter.Describe(info), "error", why)
		ctx, cancel := context.WithTimeout(ctx, removeWait) // bounds how long it is given once more
		defer cancel()
		return false, b.Mounter.Unmount(ctx, p.Target)
	}
	same, err := b.shows(ctx, v, info)
	if err != nil {
		return false, err
	}
	if !same {
		return false, flex.Errorf(flex.CodeAlreadyExists, "%s is in use: %s is mounted there, which is not this volume (%s %s); unmount it first", p.Path(), mounter.Describe(info), v.Kind, v.Source)
	}
	options := info.Options
	if v.Kind == kindSource { // there the whole filesystem may be what is read-only
		options += "," + info.VFSOptions
	}
	if readOnly := slices.Contains(strings.Split(options, ","), "ro"); readOnly != v.ReadOnly {
		return false, flex.Errorf(flex.CodeAlreadyExists, "%s is in use: the volume is mounted there with read-only=%t, not %t as asked; unmount it first", p.Path(), readOnly, v.ReadOnly)
	}
	return true, nil
}

// shows reports whether a mount is one of the volume.
func (b *Backend) shows(ctx context.Context, v *Volume, info *mounter.Info) (bool, error) {
	switch v.Kind {
	case kindImage:
		image, err := b.Mounter.OpenImage(ctx, v.Source, 0, b.images())
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		defer image.Close()
		device, err := b.Mounter.AttachedTo(image)
		return device != "" && sameDevice(device, info.Source), err
	case kindDevice:
		d, err := b.findDevice(ctx, v.Source)
		if err != nil {
			return false, err
		}
		defer d.Close()
		return sameDevice(d.Path, info.Source), nil
	case kindSource:
		return info.Source == v.Source && (info.FSType == v.FSType || strings.HasPrefix(info.FSType, v.FSType)), nil
	case kindPath:
		return b.Mounter.SameDirectory(ctx, v.Source, b.directories(), info.Mountpoint)
	}
	return info.FSType == "tmpfs", nil
}
