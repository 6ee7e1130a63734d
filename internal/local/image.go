package local

import (
	"context"
	"errors"
	"io/fs"

	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/pkg/mounter"
)

// mountImage attaches an image and mounts what is in it. The image is created
// first if it does not exist and has a size.
func (b *Backend) mountImage(ctx context.Context, v *Volume, p *lockedTarget, o flex.Options) error {
	image, unlock, err := b.openImage(ctx, v, p.root, o.PodNamespace)
	if err != nil {
		return err
	}
	defer unlock()
	if err := b.mountOpenImage(ctx, v, image, p, o); err != nil {
		// Or the next call would take it as it is, with the size of this one. A call that
		// waits for the lock sees that it is no longer in place.
		image.Remove()
		return err
	}
	return nil
}

func (b *Backend) mountOpenImage(ctx context.Context, v *Volume, image *mounter.Image, p *lockedTarget, o flex.Options) error {
	if image.ReadOnly && !v.ReadOnly {
		return flex.Errorf(flex.CodeFailedPrecondition, "image %s cannot be written to (read-only filesystem or file); mount the volume read-only or make the image writable", v.Source)
	}
	loop, err := b.Mounter.AttachImage(ctx, image)
	if err != nil {
		return err
	}
	defer loop.Close()
	return b.Mounter.MountDisk(ctx, v.disk(loop.Device), p.Target, b.owner(ctx, v, o))
}

// openImage opens an image and locks it. It is created if it has to be, with
// the directory of its namespace.
func (b *Backend) openImage(ctx context.Context, v *Volume, root, namespace string) (image *mounter.Image, unlock func(), err error) {
	image, err = b.Mounter.OpenImage(ctx, v.Source, 0, b.images())
	if errors.Is(err, fs.ErrNotExist) && v.createSize() > 0 && namespace != "" {
		image, err = b.createImage(ctx, v, root, namespace)
	}
	if err != nil {
		if v.ReadOnly && v.Size > 0 && errors.Is(err, fs.ErrNotExist) {
			err = flex.Errorf(flex.CodeNotFound, "image %s does not exist, and is not created for a volume that is read-only; mount it read-write once", v.Source)
		}
		return nil, nil, err
	}
	locked, err := lock(ctx, root, image.Key())
	if err != nil {
		image.Close()
		return nil, nil, err
	}
	return image, func() { locked.Close(); image.Close() }, nil
}

func (b *Backend) createImage(ctx context.Context, v *Volume, root, namespace string) (*mounter.Image, error) {
	if err := b.permitSize("create image "+v.Source, v.Size); err != nil {
		return nil, err
	}
	locked, err := lock(ctx, root, "images")
	if err != nil {
		return nil, err
	}
	defer locked.Close()
	if image, err := b.Mounter.OpenImage(ctx, v.Source, 0, b.images()); !errors.Is(err, fs.ErrNotExist) {
		return image, err // another call made it meanwhile
	}
	imageRoot, err := b.permitRoom(v, v.Size, 1)
	if err != nil {
		return nil, err
	}
	if err := b.Mounter.MakeRootOnlyDir(imageRoot, namespace); err != nil {
		return nil, err
	}
	return b.Mounter.OpenImage(ctx, v.Source, v.Size, b.images())
}

// createSize is the size of an image that has to be made, or 0 where it must
// exist: an empty read-only volume would be of no use.
func (v *Volume) createSize() int64 {
	if v.ReadOnly {
		return 0
	}
	return v.Size
}
