package local

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/flex2csi/flex2csi/internal/sensitive"
	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/pkg/mounter"
)

// Kind is what a volume is made of.
type Kind string

// The kinds, named by the option that chooses them.
const (
	KindImage  Kind = "image"  // a file that holds a disk
	KindDevice Kind = "device" // a block device
	KindSource Kind = "source" // a network or other filesystem
	KindPath   Kind = "path"   // a directory of the node
	KindMemory Kind = "medium" // tmpfs
)

// The options of a volume, as they stand in the PersistentVolume under
// spec.flexVolume.options. docs/volumes.md is the reference for users.
const (
	optionImage        = "image"
	optionDevice       = "device"
	optionSource       = "source"
	optionPath         = "path"
	optionMedium       = "medium"
	optionSize         = "size"
	optionMountOptions = "mountOptions"
	optionMkfsOptions  = "mkfsOptions"
	optionSELinux      = "seLinuxContext"
)

// A Volume is what the options of one call say.
type Volume struct {
	Kind Kind
	// Source is the value of the option that Kind is named by.
	Source       string
	Size         int64 // bytes; 0 if not given
	FSType       string
	ReadOnly     bool
	MountOptions []string
	MkfsOptions  []string
}

// isDisk: a device under a filesystem of its own, with a device mount path.
func (v *Volume) isDisk() bool { return v.Kind == KindImage || v.Kind == KindDevice }

// kinds says which options go with which kind.
func kinds() map[Kind][]string {
	return map[Kind][]string{
		KindImage:  {optionImage, optionSize, optionMkfsOptions},
		KindDevice: {optionDevice, optionMkfsOptions},
		KindSource: {optionSource},
		KindPath:   {optionPath},
		KindMemory: {optionMedium, optionSize},
	}
}

// ParseVolume turns options into a Volume. What is unknown, contradicting or
// malformed is an error that names all of it.
func ParseVolume(o flex.Options) (*Volume, error) {
	kind, err := chooseKind(o.User)
	if err != nil {
		return nil, err
	}
	v := &Volume{Kind: kind, Source: o.User[string(kind)], FSType: o.FSType, ReadOnly: o.ReadOnly}
	faults := v.checkNames(o.User)
	faults = append(faults, v.readCommon(o.User)...)
	faults = append(faults, v.check(o.User)...)
	if len(faults) > 0 {
		return nil, invalid("%s", strings.Join(faults, "; "))
	}
	return v, nil
}

func invalid(format string, args ...any) error {
	return flex.Errorf(flex.CodeInvalidArgument, "volume options: "+format, args...)
}

func chooseKind(user map[string]string) (Kind, error) {
	var given []string
	for kind := range kinds() {
		if _, ok := user[string(kind)]; ok {
			given = append(given, string(kind))
		}
	}
	slices.Sort(given)
	switch len(given) {
	case 1:
		return Kind(given[0]), nil
	case 0:
		return "", invalid("none of image, device, source, path and medium is given, one of which says what the volume is%s", listKeys(user))
	}
	return "", invalid("%s contradict each other: a volume is one of image, device, source, path and medium", strings.Join(given, " and "))
}

func listKeys(user map[string]string) string {
	if len(user) == 0 {
		return " (there are no options at all)"
	}
	return " (given: " + strings.Join(slices.Sorted(maps.Keys(user)), ", ") + ")"
}

// checkNames finds options that are unknown or belong to another kind.
func (v *Volume) checkNames(user map[string]string) []string {
	allowed := append(kinds()[v.Kind], optionMountOptions, optionSELinux)
	var faults []string
	for _, name := range slices.Sorted(maps.Keys(user)) {
		if !slices.Contains(allowed, name) {
			faults = append(faults, fmt.Sprintf("%q is not an option of a volume with %s (those are: %s)%s", name, v.Kind, strings.Join(allowed, ", "), suggest(name, allowed)))
		}
	}
	return faults
}

// suggest helps with a wrong case or a plural.
func suggest(name string, allowed []string) string {
	simple := func(s string) string {
		s = strings.ReplaceAll(strings.ReplaceAll(s, "-", ""), "_", "")
		return strings.TrimSuffix(strings.ToLower(s), "s")
	}
	for _, a := range allowed {
		if simple(a) == simple(name) {
			return fmt.Sprintf("; did you mean %q?", a)
		}
	}
	return ""
}

// readCommon reads the options that several kinds share.
func (v *Volume) readCommon(user map[string]string) (faults []string) {
	for _, name := range slices.Sorted(maps.Keys(user)) {
		if strings.ContainsFunc(user[name], func(r rune) bool { return r < ' ' || r == 0x7f }) {
			faults = append(faults, fmt.Sprintf("%s contains control characters", name))
		}
	}
	if size, ok := user[optionSize]; ok {
		n, err := ParseQuantity(size)
		if err != nil {
			faults = append(faults, fmt.Sprintf("size: %v", err))
		}
		v.Size = n
	}
	v.MountOptions = mounter.SplitOptions(user[optionMountOptions])
	if context := user[optionSELinux]; context != "" {
		if strings.ContainsAny(context, `"\ `) {
			faults = append(faults, fmt.Sprintf("seLinuxContext %q is no context", context))
		}
		v.MountOptions = append(v.MountOptions, fmt.Sprintf(`context="%s"`, context))
	}
	v.MkfsOptions = strings.Fields(user[optionMkfsOptions])
	v.MountOptions = slices.DeleteFunc(v.MountOptions, func(o string) bool {
		v.ReadOnly = v.ReadOnly || o == "ro"
		return o == "ro"
	})
	return faults
}

// check looks at what remains, by kind.
func (v *Volume) check(user map[string]string) (faults []string) {
	add := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	if v.Source == "" {
		add("%s is empty", v.Kind)
	}
	if strings.HasPrefix(v.Source, "-") {
		add("%s begins with a dash", v.Kind)
	}
	for _, o := range v.MountOptions {
		if strings.HasPrefix(o, "-") {
			add("mountOptions: %q begins with a dash (the list is comma-separated, without -o)", o)
		}
		if name, value, _ := strings.Cut(o, "="); sensitive.Key(name) && value != "" && !isSecretFile(o) && !isCredentialsFile(name, value) {
			add("mountOptions: %s would show in the node's process list; put it into the volume's Secret and give the option the value %s", name, secretFileExample)
		}
	}
	switch v.Kind {
	case KindImage, KindPath:
		if err := mounter.CheckPath(v.Source); err != nil && v.Source != "" {
			add("%s %q: %v", v.Kind, v.Source, err)
		}
	case KindDevice:
		if err := checkDevice(v.Source); err != nil && v.Source != "" {
			add("device %q: %v", v.Source, err)
		}
	case KindMemory:
		if v.Source != "memory" && v.Source != "Memory" {
			add("medium %q: only memory is known", v.Source)
		}
	}
	return append(faults, v.checkFSType(user)...)
}

func (v *Volume) checkFSType(user map[string]string) (faults []string) {
	switch {
	case v.isDisk() && v.FSType != "" && !slices.Contains(diskTypes(), v.FSType):
		faults = append(faults, fmt.Sprintf("fsType %q is no filesystem that a disk can have here (%s)", v.FSType, strings.Join(diskTypes(), ", ")))
	case v.Kind == KindSource && v.FSType == "":
		faults = append(faults, "a volume with source needs an fsType (nfs, cifs, ceph, fuse.<program>, …)")
	case v.Kind == KindSource && slices.Contains(diskTypes(), v.FSType):
		faults = append(faults, fmt.Sprintf("fsType %s is a filesystem on a disk; give that with device or image instead of source", v.FSType))
	case (v.Kind == KindPath || v.Kind == KindMemory) && v.FSType != "" && v.FSType != "tmpfs":
		faults = append(faults, fmt.Sprintf("fsType %q contradicts %s, which has no filesystem of its own", v.FSType, v.Kind))
	case v.Kind == KindImage && v.FSType == "xfs" && v.Size > 0 && v.Size < minXFS:
		faults = append(faults, fmt.Sprintf("size %s is too small for xfs, which needs 300Mi", user[optionSize]))
	}
	return faults
}

// minXFS is what mkfs.xfs asks for since xfsprogs 5.19.
const minXFS = 300 << 20

func diskTypes() []string { return []string{"ext4", "xfs", "btrfs", "ext3", "ext2"} }
