package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/flex2csi/flex2csi/internal/kubeletdir"
	"github.com/flex2csi/flex2csi/internal/nodemounts"
	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/pkg/mounter"
)

// Plan returns the steps that a callout would take now. It only reads. The error is the
// one with which the callout would fail before its first step.
func (b *Backend) Plan(ctx context.Context, c *flex.Call) ([]string, error) {
	if c.Command == flex.CommandUnmount || c.Command == flex.CommandUnmountDevice {
		return b.planTearDown(c)
	}
	if c.Command == flex.CommandDetach {
		return []string{fmt.Sprintf("remove the attachment lock of volume %[2]s for node %[1]s", c.NodeName, c.VolumeName)}, nil
	}
	v, err := parseVolume(c.Options)
	if err != nil {
		return nil, err
	}
	permit := b.permit
	if c.Command == flex.CommandAttach || c.Command == flex.CommandIsAttached {
		permit = b.permitAttach
	}
	if err := permit(v, c.Options); err != nil {
		return nil, err
	}
	switch c.Command {
	case flex.CommandMount, flex.CommandMountDevice:
		return b.planSetUp(ctx, v, c)
	case flex.CommandExpandFS, flex.CommandExpandVolume:
		return b.planExpansion(ctx, v, c)
	case flex.CommandWaitForAttach:
		return b.planWait(ctx, v)
	}
	return []string{fmt.Sprintf("check the options: %s", v), fmt.Sprintf("lock it for node %s in %s, unless another node has it", c.NodeName, b.AttachLocks)}, nil
}

// String is the volume in words.
func (v *Volume) String() string {
	parts := []string{fmt.Sprintf("%s %s", v.Kind, v.Source)}
	switch {
	case v.FSType != "":
		parts = append(parts, v.FSType)
	case v.isDisk():
		parts = append(parts, "the filesystem that is there")
	}
	if v.ReadOnly {
		return strings.Join(append(parts, "read-only"), ", ")
	}
	return strings.Join(append(parts, "read-write"), ", ")
}

func (b *Backend) planSetUp(ctx context.Context, v *Volume, c *flex.Call) ([]string, error) {
	if c.Command == flex.CommandMountDevice && v.Kind != kindDevice {
		if _, err := b.root(c.Dir); err != nil {
			return nil, err
		}
		return []string{fmt.Sprintf("nothing: a volume with %s is mounted for each pod", v.Kind)}, nil
	}
	if err := requireNamespace(v, c.Options); err != nil {
		return nil, err
	}
	info, err := b.lookAt(c.Dir)
	if err != nil {
		return nil, err
	}
	steps := []string{"check and lock " + c.Dir}
	if info != nil {
		return append(steps, fmt.Sprintf("find that %s is mounted there: succeed if it is this volume and healthy, remove it if it is dead, fail otherwise", mounter.Describe(info))), nil
	}
	switch v.Kind {
	case kindPath:
		if err := b.Mounter.FindDirectory(ctx, v.Source, b.directories()); err != nil {
			return nil, nodemounts.WithCode(err)
		}
	case kindImage:
		more, err := b.planImage(ctx, v)
		steps = append(steps, more...)
		if err != nil {
			return steps, err
		}
	case kindDevice:
		d, err := b.openUnused(ctx, v, c.Dir)
		if err != nil {
			return nil, err
		}
		defer d.Close()
		more, err := b.planDisk(ctx, v, d.Path)
		steps = append(steps, more...)
		if err != nil {
			return steps, err
		}
	}
	if strings.HasPrefix(steps[len(steps)-1], planFails) {
		return steps, nil
	}
	if c.Options.FSGroup != nil && b.ApplyFSGroup && !v.ReadOnly && v.Kind != kindSource {
		steps = append(steps, fmt.Sprintf("give the files to group %d, unless the root has it already, before the mount can be seen", *c.Options.FSGroup))
	}
	return append(steps, fmt.Sprintf("mount %s at %s%s", v, c.Dir, optionText(v)), "verify that it is there, and read-only if it should be"), nil
}

// planFails begins a step that is the last one.
const planFails = "fail: "

func optionText(v *Volume) string {
	if len(v.MountOptions) == 0 {
		return ""
	}
	return " with " + strings.Join(v.MountOptions, ",")
}

// lookAt returns what is mounted at dir, without creating or locking anything.
func (b *Backend) lookAt(dir string) (*mounter.Info, error) {
	root, err := b.root(dir)
	if err != nil {
		return nil, err
	}
	t, err := mounter.OpenTarget(kubeletdir.LinksTo(root, dir), dir)
	if err != nil {
		return nil, nodemounts.WithCode(err)
	}
	defer t.Close()
	info, err := t.Info()
	return info, nodemounts.WithCode(err)
}

func (b *Backend) planImage(ctx context.Context, v *Volume) ([]string, error) {
	image, err := b.Mounter.OpenImage(ctx, v.Source, 0, b.images())
	if errors.Is(err, fs.ErrNotExist) && v.createSize() > 0 {
		if err := b.permitSize("create image "+v.Source, v.Size); err != nil {
			return nil, err
		}
		if _, err := b.permitRoom(v, v.Size, 1); err != nil {
			return nil, nodemounts.WithCode(err)
		}
		fsType := v.FSType
		if fsType == "" {
			fsType = mounter.DefaultFSType
		}
		return []string{
			fmt.Sprintf("create %s, sparse, %d bytes", v.Source, v.Size),
			"attach it to a free loop device, with direct I/O if its filesystem can, to be detached with the last mount",
			"format it: mkfs." + fsType,
		}, nil
	}
	if err != nil {
		return nil, nodemounts.WithCode(err)
	}
	defer image.Close()
	device, err := b.Mounter.AttachedTo(image)
	if err != nil {
		return nil, nodemounts.WithCode(err)
	}
	if device != "" {
		return []string{fmt.Sprintf("use %s, which has %s already", device, v.Source)}, nil
	}
	steps := []string{fmt.Sprintf("attach %s to a free loop device", v.Source)}
	more, err := b.planDisk(ctx, v, v.Source)
	return append(steps, more...), err
}

// planDisk says what happens to the content of a disk or image.
func (b *Backend) planDisk(ctx context.Context, v *Volume, path string) ([]string, error) {
	found, err := b.Mounter.Probe(ctx, path)
	if err != nil {
		return nil, nodemounts.WithCode(err)
	}
	d := v.disk(path)
	switch {
	case found == "" && !v.ReadOnly:
		if d.FSType == "" {
			d.FSType = mounter.DefaultFSType
		}
		return []string{"format it, since it is empty: mkfs." + d.FSType}, nil
	case found == "":
		return []string{planFails + "it is empty, and a read-only volume is never formatted"}, nil
	case d.FSType != "" && found != d.FSType:
		return []string{fmt.Sprintf(planFails+"it holds %s, not %s, and is never formatted over", found, d.FSType)}, nil
	case v.ReadOnly:
		return []string{fmt.Sprintf("use the %s on it as it is", found)}, nil
	}
	return []string{fmt.Sprintf("check the %s on it, unless it is mounted already: fsck -a", found)}, nil
}

func (b *Backend) planTearDown(c *flex.Call) ([]string, error) {
	info, err := b.lookAt(c.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return []string{fmt.Sprintf("nothing: %s does not exist", c.Dir)}, nil
	}
	if err != nil {
		return nil, err
	}
	if info == nil {
		return []string{fmt.Sprintf("nothing: %s is no mount point", c.Dir)}, nil
	}
	steps := []string{fmt.Sprintf("unmount %s, and what is mounted below it", mounter.Describe(info))}
	if backing := mounter.BackingFile(info.Source); backing != "" {
		steps = append(steps, fmt.Sprintf("with the last mount the kernel detaches %s from %s", backing, info.Source))
	}
	if c.Command == flex.CommandUnmountDevice && isBlockDevice(info.Source) {
		steps = append(steps, fmt.Sprintf("wait up to %v until %s is free", releaseWait, info.Source))
	}
	return steps, nil
}

func (b *Backend) planWait(ctx context.Context, v *Volume) ([]string, error) {
	switch v.Kind {
	case kindImage:
		return []string{fmt.Sprintf("leave it to mount to open or create %s", v.Source)}, nil
	case kindDevice:
		d, err := b.findDevice(ctx, v.Source)
		if err == nil {
			return []string{fmt.Sprintf("answer %s, which is there", d.Path)}, d.Close()
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		return []string{"wait until " + v.Source + " appears"}, nil
	}
	return []string{fmt.Sprintf("nothing: a volume with %s is not attached", v.Kind)}, nil
}

func (b *Backend) planExpansion(ctx context.Context, v *Volume, c *flex.Call) ([]string, error) {
	if _, err := b.parseForExpansion(c); err != nil {
		return nil, err
	}
	switch v.Kind {
	case kindImage:
		image, err := b.Mounter.OpenImage(ctx, v.Source, 0, b.images())
		if err != nil {
			return nil, nodemounts.WithCode(err)
		}
		defer image.Close()
		return []string{
			fmt.Sprintf("grow %s to %d bytes, unless it is as large", v.Source, c.NewSize),
			"tell its loop device, if it has one",
			"grow the filesystem, mounted or not",
		}, nil
	case kindDevice:
		d, err := b.openUnused(ctx, v, c.Dir)
		if err != nil {
			return nil, err
		}
		defer d.Close()
		return []string{fmt.Sprintf("check that %s has %d bytes", v.Source, c.NewSize), "grow the filesystem, mounted or not"}, nil
	case kindMemory:
		return []string{fmt.Sprintf("raise the size of the tmpfs at %s to %d bytes, unless it is as high", c.Dir, c.NewSize)}, nil
	}
	return []string{fmt.Sprintf("check that the filesystem at %s has %d bytes; it cannot be grown from here", c.Dir, c.NewSize)}, nil
}
