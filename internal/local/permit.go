package local

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/pkg/mounter"
)

// permit refuses a volume that this node's configuration does not allow. Users who
// may create a pod may write any options (an inline flexVolume), so what the options
// name is bounded here. Every call on the node that opens a volume checks this first,
// also with --dry-run; see permitAttach for the control plane.
//
// An image belongs to the namespace that its path names: ROOT/NAMESPACE/….
// Only mount gets the namespace, so waitforattach and mountdevice do not create, format
// or mount images. expandfs and expandvolume are never for an inline volume.
func (b *Backend) permit(v *Volume, o flex.Options) error {
	switch v.Kind {
	case kindImage:
		return b.permitImage(v, o.PodNamespace)
	case kindDevice:
		if isTag(v.Source) && len(b.DeviceRoots) > 0 {
			return nil // findDevice resolves it to a name below them
		}
		_, err := permitPath(v, b.DeviceRoots, "deviceRoots", "--device-root")
		return err
	case kindPath:
		_, err := permitPath(v, b.DirectoryRoots, "directoryRoots", "--directory-root")
		return err
	case kindSource:
		return b.permitSource(v)
	}
	return b.permitMemory(v.Size)
}

// permitAttach is permit for attach and isattached, which run in the control plane under
// the configuration there. Both lock a disk, so without a permission any pod could keep a
// disk from all other nodes. Nothing else is locked, and memory is not that of the node.
func (b *Backend) permitAttach(v *Volume, o flex.Options) error {
	if !v.isDisk() {
		return nil
	}
	return b.permit(v, o)
}

// permitPath returns the root that a path is below.
func permitPath(v *Volume, roots []string, field, flag string) (string, error) {
	for _, root := range roots {
		if v.Source == root || strings.HasPrefix(v.Source, root+"/") {
			return root, nil
		}
	}
	if len(roots) == 0 {
		return "", denied("%s %s: this node allows no volumes with %s; an administrator can allow those below a directory: %s in the driver's configuration, or flexdriver install %s DIR", v.Kind, v.Source, v.Kind, field, flag)
	}
	return "", denied("%s %s: it is below none of the %s in this node's configuration (%s); name one that is, or have an administrator add its directory (flexdriver install %s DIR)", v.Kind, v.Source, field, strings.Join(roots, ", "), flag)
}

func denied(format string, args ...any) error {
	return flex.Errorf(flex.CodePermissionDenied, format, args...)
}

func (b *Backend) permitImage(v *Volume, namespace string) error {
	root, err := permitPath(v, b.ImageRoots, "imageRoots", "--image-root")
	if err != nil {
		return err
	}
	owner := namespaceBelow(root, v)
	switch {
	case owner == "":
		return denied("image %s: an image lies below the directory of its pod's namespace, %s/NAMESPACE/; name it there", v.Source, root)
	case namespace != "" && namespace != owner:
		return denied("image %s: it is of namespace %s, but the pod is in namespace %s; images of that namespace lie below %s/%s/", v.Source, owner, namespace, root, namespace)
	}
	return nil
}

// namespaceBelow is the namespace that the path of an image names; empty: none.
func namespaceBelow(root string, v *Volume) string {
	owner, name, _ := strings.Cut(strings.TrimPrefix(v.Source, root+"/"), "/")
	if name == "" {
		return ""
	}
	return owner
}

// namespaceOf is that of an image which is permitted.
func (b *Backend) namespaceOf(v *Volume) string {
	root, err := permitPath(v, b.ImageRoots, "imageRoots", "--image-root")
	if err != nil {
		return ""
	}
	return namespaceBelow(root, v)
}

// requireNamespace refuses to touch an image if the call has no namespace.
func requireNamespace(v *Volume, o flex.Options) error {
	if v.Kind != kindImage || o.PodNamespace != "" {
		return nil
	}
	return flex.Errorf(flex.CodeInvalidArgument, "image %s: the call does not pass the pod's namespace, to which images belong; by hand, add %q to the options", v.Source, flex.OptionPodNamespace)
}

func (b *Backend) permitSource(v *Volume) error {
	if slices.Contains(b.SourceTypes, v.FSType) {
		return nil
	}
	if len(b.SourceTypes) == 0 {
		return denied("source %s: this node allows no volumes with source; an administrator can allow those with a type of filesystem: sourceTypes in the driver's configuration, or flexdriver install --source-type %s", v.Source, v.FSType)
	}
	return denied("source %s: fsType %s is none of the sourceTypes in this node's configuration (%s); give one of them, or have an administrator add it (flexdriver install --source-type %s)", v.Source, v.FSType, strings.Join(b.SourceTypes, ", "), v.FSType)
}

// images and directories are the roots, none of which may show what is below an image root:
// the configuration compares their names alone, and what those lead to changes.
func (b *Backend) images() mounter.Roots {
	return mounter.Roots{Below: b.ImageRoots, Apart: slices.Concat(b.DirectoryRoots, b.ImageRoots)}
}

func (b *Backend) directories() mounter.Roots {
	return mounter.Roots{Below: b.DirectoryRoots, Apart: b.ImageRoots}
}

// permitSize bounds what is created and what grows.
func (b *Backend) permitSize(what string, size int64) error {
	if size <= b.MaxSize {
		return nil
	}
	return denied("%s: %d bytes are more than the maxSize in this node's configuration, which is %d; ask for less, or have an administrator raise it (flexdriver install --max-size SIZE)", what, size, b.MaxSize)
}

// permitMemory: a tmpfs may have half of the memory, the kernel's own default
// (tmpfs(5), size), and no more.
func (b *Backend) permitMemory(size int64) error {
	if err := b.permitSize("medium memory", size); err != nil {
		return err
	}
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return fmt.Errorf("read the size of the memory: %w", err)
	}
	if half := int64(info.Totalram * uint64(info.Unit) / 2); size > half {
		return denied("medium memory: %d bytes are more than half of this node's memory (%d); ask for less", size, half)
	}
	return nil
}
