package local

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/flex2csi/flex2csi/internal/allow"
	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/pkg/mounter"
)

// checkCharacters refuses what would garble the mount table, a log or a
// message. Values with such a character get no further checks.
func checkCharacters(o flex.Options) (faults []string) {
	for _, name := range slices.Sorted(maps.Keys(o.User)) {
		if strings.ContainsFunc(o.User[name], isControl) {
			faults = append(faults, fmt.Sprintf("%s contains control characters; is there a line break in it?", strings.Trim(strconv.Quote(name), `"`)))
		}
	}
	if strings.ContainsFunc(o.FSType, isControl) {
		faults = append(faults, fmt.Sprintf("fsType %q contains control characters", o.FSType))
	}
	return faults
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

// check looks at the values, by kind.
func (v *Volume) check(user map[string]string) (faults []string) {
	switch {
	case v.Source == "":
		faults = append(faults, fmt.Sprintf("%s is empty", v.Kind))
	case v.Kind == kindImage, v.Kind == kindPath:
		if err := mounter.CheckPath(v.Source); err != nil {
			faults = append(faults, fmt.Sprintf("%s %q: %v", v.Kind, v.Source, err))
		}
	case v.Kind == kindDevice:
		if err := checkDevice(v.Source); err != nil {
			faults = append(faults, fmt.Sprintf("device %q: %v", v.Source, err))
		}
	case v.Kind == kindSource && hasPassword(v.Source):
		faults = append(faults, "source contains a password, which would show in the node's process list; put it into the volume's Secret")
	case v.Kind == kindSource && allow.IsSourceType(v.FSType):
		if fault := allow.Source(v.FSType, v.Source); fault != "" {
			faults = append(faults, fault)
		}
	case v.Kind == kindMemory && v.Source != "memory" && v.Source != "Memory":
		faults = append(faults, fmt.Sprintf("medium %q is not known; there is memory", v.Source))
	}
	faults = append(faults, v.checkMountOptions(user[optionSELinux])...)
	return append(faults, v.checkFSType(user)...)
}

// checkMountOptions checks what can be said of one option by its form, and has
// the rest compared with the list of the type. label is the option
// seLinuxContext.
func (v *Volume) checkMountOptions(label string) (faults []string) {
	var formed []string
	for _, o := range v.MountOptions {
		switch f := v.checkMountOption(o); {
		case len(f) > 0:
			faults = append(faults, f...)
		case o == contextOption(label) && !allow.IsContext(label):
			faults = append(faults, fmt.Sprintf("seLinuxContext %q is no label of the form user:role:type:level", label))
		default:
			formed = append(formed, o)
		}
	}
	if list, known := v.listOfOptions(); known {
		faults = append(faults, allow.Mount(list, formed)...)
	}
	return faults
}

func contextOption(label string) string { return fmt.Sprintf(`context="%s"`, label) }

// listOfOptions names the allow-list of the volume's mount options. An fsType
// that has none is a fault by itself.
func (v *Volume) listOfOptions() (list string, known bool) {
	switch v.Kind {
	case kindPath:
		return allow.Directory, true
	case kindMemory:
		return allow.Memory, true
	case kindSource:
		return v.FSType, allow.IsSourceType(v.FSType)
	}
	return v.FSType, v.FSType == allow.AnyDisk || slices.Contains(allow.DiskTypes(), v.FSType)
}

func (v *Volume) checkMountOption(o string) (faults []string) {
	add := func(format string, args ...any) {
		faults = append(faults, "mountOptions: "+fmt.Sprintf(format, args...))
	}
	name, value, _ := strings.Cut(o, "=")
	hidden := isSecretFile(o)
	switch {
	case strings.HasPrefix(o, "-"):
		add("%q begins with a dash (the list is comma-separated, without -o)", name)
	case name == "":
		add("an option has no name before the =")
	case (name == "user" || name == "username") && strings.Contains(value, "%"):
		add("%s with a %% gives a password as well, which would show in the node's process list; put both into the volume's Secret", name)
	case hidden && v.Kind != kindSource:
		add("%s: only a volume with source has use for a secret file", name)
	case hidden && allow.SecretKey(value) == "":
		add("%s: %s names no key of the volume's Secret", name, value)
	case !hidden && strings.HasPrefix(value, secretFilePrefix):
		add("%s: a secret file is written %s", name, secretFileExample)
	}
	return faults
}

func (v *Volume) checkFSType(user map[string]string) (faults []string) {
	add := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	switch {
	case v.isDisk() && v.FSType != "" && !slices.Contains(allow.DiskTypes(), v.FSType):
		add("fsType %q is no filesystem that a disk can have here (those are %s)", v.FSType, strings.Join(allow.DiskTypes(), ", "))
	case v.Kind == kindSource && v.FSType == "":
		add("a volume with source needs an fsType (nfs, cifs, ceph, fuse.<program>, …)")
	case v.Kind == kindSource && slices.Contains(allow.DiskTypes(), v.FSType):
		add("fsType %s is a filesystem on a disk, which is given with device or image, not with source", v.FSType)
	case v.Kind == kindSource && !allow.IsSourceType(v.FSType):
		add("fsType %q is not known for a volume with source (there are %s and fuse.<program>)", v.FSType, strings.Join(allow.SourceTypes(), ", "))
	case (v.Kind == kindPath || v.Kind == kindMemory) && v.FSType != "" && v.FSType != "tmpfs":
		add("fsType %q contradicts %s, which has no filesystem to choose; leave it out", v.FSType, v.Kind)
	case v.Kind == kindImage && user[optionSize] != "" && v.Size > 0 && v.Size < leastSize(v.FSType):
		add("size %s is too small for %s, which needs %dMi; is the unit missing?", user[optionSize], cmp.Or(v.FSType, mounter.DefaultFSType), leastSize(v.FSType)>>20)
	}
	return faults
}

// leastSize is what the filesystem needs: mkfs.xfs since xfsprogs 5.19, mkfs.btrfs
// 109 MiB (btrfs-progs 6.2, btrfs_min_dev_size). ext4 has a journal from 2 MiB on only, but
// is made at a quarter of one.
func leastSize(fsType string) int64 {
	switch fsType {
	case "xfs":
		return 300 << 20
	case "btrfs":
		return 109 << 20
	}
	return 1 << 20
}

// hasPassword: scheme://user:password@host.
func hasPassword(source string) bool {
	_, rest, ok := strings.Cut(source, "://")
	user, _, at := strings.Cut(rest, "@")
	return ok && at && strings.Contains(user, ":")
}
