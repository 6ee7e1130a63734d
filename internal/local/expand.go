package local

import (
	"context"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/internal/nodemounts"
	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/pkg/mounter"
)

// expandVolume grows what the node or the control plane sees of the disk. Kubernetes
// does not call it today: kube-controller-manager's expand controller starts its plugins
// without a prober (pkg/controller/volume/expand/expand_controller.go, Kubernetes v1.37.1).
// It does the work of expandfs without the filesystem.
func (b *Backend) expandVolume(ctx context.Context, c *flex.Call) error {
	v, err := b.parseForExpansion(c)
	if err != nil {
		return err
	}
	switch v.Kind {
	case kindImage:
		image, err := b.Mounter.OpenImage(ctx, v.Source, 0, b.images())
		if err != nil {
			return nodemounts.WithCode(err)
		}
		defer image.Close()
		return nodemounts.WithCode(b.growImage(ctx, v, image, c.NewSize))
	case kindDevice:
		d, err := b.findDevice(ctx, v.Source)
		if err != nil {
			return err
		}
		defer d.Close()
		return requireSize(d.Path, c.NewSize)
	}
	return flex.Errorf(flex.CodeFailedPrecondition, "a volume with %s has no size but that of its mount, which expandfs changes or checks", v.Kind)
}

func (b *Backend) parseForExpansion(c *flex.Call) (*Volume, error) {
	v, err := parseVolume(c.Options)
	switch {
	case err != nil:
		return nil, err
	case c.NewSize <= 0:
		return nil, flex.Errorf(flex.CodeInvalidArgument, "the new size is %d bytes; a volume cannot shrink to nothing", c.NewSize)
	case c.NewSize < c.OldSize:
		return nil, flex.Errorf(flex.CodeInvalidArgument, "the new size (%d bytes) is smaller than the old one (%d bytes); a volume never shrinks", c.NewSize, c.OldSize)
	case v.ReadOnly:
		return nil, flex.Errorf(flex.CodeFailedPrecondition, "the volume is read-only here and cannot be expanded")
	}
	return v, b.permitExpansion(v, c)
}

func (b *Backend) permitExpansion(v *Volume, c *flex.Call) error {
	if err := b.permit(v, c.Options); err != nil {
		return err
	}
	switch v.Kind {
	case kindImage:
		return b.permitSize("grow image "+v.Source, c.NewSize)
	case kindMemory:
		return b.permitMemory(c.NewSize)
	}
	return nil
}

// expandFS does all of an expansion, since it is the only callout that
// Kubernetes makes for one: the image or the check of the device, the loop
// device, and the filesystem.
//
// The kubelet does not pass the namespace here, and need not: it expands claims only.
// Their options are those of a PersistentVolume, which no author of a pod writes (Kubernetes v1.37.1, pkg/volume/util/operationexecutor,
// expandVolumeDuringMount).
func (b *Backend) expandFS(ctx context.Context, c *flex.Call) error {
	v, err := b.parseForExpansion(c)
	if err != nil {
		return err
	}
	p, err := b.open(ctx, c.Dir)
	if err != nil {
		return err
	}
	defer p.close()
	switch v.Kind {
	case kindImage:
		return nodemounts.WithCode(b.expandImage(ctx, v, p, c.NewSize))
	case kindDevice:
		return nodemounts.WithCode(b.expandDevice(ctx, v, p, c.NewSize))
	case kindMemory:
		if err := b.requireMounted(ctx, v, p); err != nil {
			return err
		}
		return nodemounts.WithCode(b.Mounter.ResizeMemory(ctx, c.NewSize, p.Target))
	}
	if err := b.requireMounted(ctx, v, p); err != nil {
		return err
	}
	return requireSpace(p.Path(), c.NewSize)
}

func (b *Backend) expandImage(ctx context.Context, v *Volume, p *lockedTarget, size int64) error {
	info, err := p.Info()
	if err != nil {
		return err
	}
	namespace := ""
	if info == nil {
		// With attach: true this comes before the first mount, too, and the kubelet
		// waits for its success.
		namespace = b.namespaceOf(v)
	}
	image, unlock, err := b.openImage(ctx, v, p.root, namespace)
	if err != nil {
		return err
	}
	defer unlock()
	locked, err := lock(ctx, p.root, "images")
	if err != nil {
		return err
	}
	err = b.growImage(ctx, v, image, size)
	locked.Close()
	if err != nil {
		return err
	}
	loop, err := b.Mounter.AttachImage(ctx, image)
	if err != nil {
		return err
	}
	defer loop.Close()
	return b.growFilesystem(ctx, v, p, loop.Device, size)
}

// growImage grows an image if its filesystem has room for it.
func (b *Backend) growImage(ctx context.Context, v *Volume, image *mounter.Image, size int64) error {
	now, err := image.Size()
	if err != nil {
		return err
	}
	if now < size {
		if _, err := b.permitRoom(v, size-now, 0); err != nil {
			return err
		}
	}
	return b.Mounter.Grow(ctx, image, size)
}

func (b *Backend) expandDevice(ctx context.Context, v *Volume, p *lockedTarget, size int64) error {
	d, unlock, err := b.openDevice(ctx, v, p.root)
	if err != nil {
		return err
	}
	defer unlock()
	if err := v.ownDisk(d.Path, p.root).CheckUse(ctx); err != nil {
		return err
	}
	return b.growFilesystem(ctx, v, p, d.Path, size)
}

// growFilesystem grows what is on device, mounted at p or not mounted.
func (b *Backend) growFilesystem(ctx context.Context, v *Volume, p *lockedTarget, device string, size int64) error {
	if err := requireSize(device, size); err != nil {
		return err
	}
	info, err := p.Info()
	if err != nil {
		return err
	}
	if info != nil && !sameDevice(info.Source, device) {
		return flex.Errorf(flex.CodeFailedPrecondition, "%s has %s mounted, which is not this volume (%s %s)", p.Path(), mounter.Describe(info), v.Kind, v.Source)
	}
	found, err := b.Mounter.Probe(ctx, device)
	if err != nil {
		return err
	}
	if found == "" {
		return nil // empty: it gets its filesystem, of full size, when it is mounted
	}
	return b.Mounter.GrowFilesystem(ctx, device, found, p.Target)
}

func requireSize(device string, size int64) error {
	have, err := mounter.DeviceSize(device)
	if err != nil {
		return flex.Errorf(flex.CodeInternal, "read the size of %s: %w", device, err)
	}
	if have < size {
		return flex.Errorf(flex.CodeFailedPrecondition, "device %s has %d bytes, fewer than the %d asked for: grow the disk behind it first (and have the kernel look again: /sys/class/block/*/device/rescan)", device, have, size)
	}
	return nil
}

func (b *Backend) requireMounted(ctx context.Context, v *Volume, p *lockedTarget) error {
	info, err := p.Info()
	if err != nil {
		return nodemounts.WithCode(err)
	}
	if info == nil {
		return flex.Errorf(flex.CodeFailedPrecondition, "%s is not mounted at %s, so its size is unknown", v.Source, p.Path())
	}
	same, err := b.shows(ctx, v, info)
	if err == nil && !same {
		return flex.Errorf(flex.CodeFailedPrecondition, "%s has %s mounted, which is not this volume", p.Path(), mounter.Describe(info))
	}
	return err
}

// requireSpace is for a filesystem that this node cannot grow: it succeeds only if the
// filesystem has the size already.
func requireSpace(path string, size int64) error {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return flex.Errorf(flex.CodeUnavailable, "read the size of the filesystem at %s: %w", path, err)
	}
	if have := int64(st.Blocks) * st.Frsize; have < size {
		return flex.Errorf(flex.CodeFailedPrecondition, "the filesystem at %s has %d bytes, fewer than the %d asked for, and cannot be grown from here: grow it where it is served", path, have, size)
	}
	return nil
}

func isBlockDevice(path string) bool { return sameDevice(path, path) }
