package driverconfig

import (
	"strings"

	"github.com/flex2csi/flex2csi/internal/allow"
	"github.com/flex2csi/flex2csi/internal/strict"
)

// Validate returns nil or an [*InvalidError] with all faults.
func (a *Allowed) Validate() error {
	var v validator
	v.allowed(a)
	if len(v.Faults) > 0 {
		return &InvalidError{Faults: v.Faults}
	}
	return nil
}

func (v *validator) allowed(a *Allowed) {
	before := len(v.Faults)
	v.roots("directoryRoots", a.DirectoryRoots)
	v.roots("imageRoots", a.ImageRoots)
	v.roots("deviceRoots", a.DeviceRoots)
	if len(v.Faults) == before {
		v.apart(a)
	}
	for i, name := range a.SourceTypes {
		if !allow.IsSourceType(name) {
			v.Fault(strict.Index("sourceTypes", i), "%q is no type of a volume with source; those are %s, and fuse.PROGRAM, such as \"fuse.sshfs\"", strict.Clip(name), strings.Join(allow.SourceTypes(), ", "))
		}
	}
	v.quantity("maxSize", a.MaxSize)
	v.quantity("maxSizePerNamespace", a.MaxSizePerNamespace)
	if a.MaxImagesPerNamespace < 0 {
		v.Fault("maxImagesPerNamespace", "%d is less than 1", a.MaxImagesPerNamespace)
	}
}

func (v *validator) quantity(at, s string) {
	if s == "" {
		return
	}
	if _, err := ParseQuantity(s); err != nil {
		v.Fault(at, "%v", err)
	}
}

// maxRoots bounds the comparison of all pairs in init.
const maxRoots = 64

func (v *validator) roots(at string, roots []string) {
	if len(roots) > maxRoots {
		v.Fault(at, "are more than %d", maxRoots)
		return
	}
	for i, root := range roots {
		v.place(strict.Index(at, i), root)
		if root == "/" {
			v.Fault(strict.Index(at, i), "\"/\" would open all of the node to everyone who may create a pod: name the directories")
		}
	}
}

// apart refuses nested roots. The first directory below an image root is a namespace,
// which would not hold below nested roots; and a pod with a directory must not be able to
// write to images.
func (v *validator) apart(a *Allowed) {
	for i, root := range a.ImageRoots {
		for j, other := range a.ImageRoots {
			if i < j && nested(root, other) {
				v.Fault(strict.Index("imageRoots", j), "%q and %q are not apart: the first directory below an image root is that of a namespace", strict.Clip(root), strict.Clip(other))
			}
		}
		for j, other := range a.DirectoryRoots {
			if nested(root, other) {
				v.Fault(strict.Index("directoryRoots", j), "%q and the image root %q are not apart: a pod with such a directory could write to images of other namespaces", strict.Clip(other), strict.Clip(root))
			}
		}
	}
}

func nested(a, b string) bool {
	return strings.HasPrefix(a+"/", b+"/") || strings.HasPrefix(b+"/", a+"/")
}
