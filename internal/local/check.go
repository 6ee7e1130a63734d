package local

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/flex2csi/flex2csi/internal/sensitive"
	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/pkg/mounter"
)

// checkCharacters refuses what would garble the mount table, a log or a
// message. No value that has such a character is looked at any further.
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
	case v.Kind == KindImage, v.Kind == KindPath:
		if err := mounter.CheckPath(v.Source); err != nil {
			faults = append(faults, fmt.Sprintf("%s %q: %v", v.Kind, v.Source, err))
		}
	case v.Kind == KindDevice:
		if err := checkDevice(v.Source); err != nil {
			faults = append(faults, fmt.Sprintf("device %q: %v", v.Source, err))
		}
	case v.Kind == KindSource && hasPassword(v.Source):
		faults = append(faults, "source contains a password, which would show in the node's process list; put it into the volume's Secret")
	case v.Kind == KindSource && strings.HasPrefix(v.Source, "-"):
		faults = append(faults, fmt.Sprintf("source %q begins with a dash, as an option does", v.Source))
	case v.Kind == KindMemory && v.Source != "memory" && v.Source != "Memory":
		faults = append(faults, fmt.Sprintf("medium %q is not known; there is memory", v.Source))
	}
	if strings.Count(user[optionMountOptions], `"`)%2 != 0 {
		faults = append(faults, "mountOptions: a double quote is not closed")
	}
	for _, o := range v.MountOptions {
		faults = append(faults, v.checkMountOption(o)...)
	}
	faults = append(faults, v.checkMkfsOptions()...)
	if context := user[optionSELinux]; context != "" && (strings.Count(context, ":") < 2 || strings.ContainsAny(context, `"\ `)) {
		faults = append(faults, fmt.Sprintf("seLinuxContext %q is no label of the form user:role:type:level", context))
	}
	return append(faults, v.checkFSType(user)...)
}

// checkMkfsOptions refuses what makes mkfs read from or write to anything but
// the volume: a directory that is copied into it, a journal on another disk.
// Whoever may name a volume may not name every file of the node.
func (v *Volume) checkMkfsOptions() (faults []string) {
	for i, o := range v.MkfsOptions {
		name, _, _ := strings.Cut(o, "=")
		other := strings.Contains(o, "/") || slices.Contains([]string{"--rootdir", "-p", "-d", "-r"}, name) && !(v.FSType == "xfs" && o == "-d")
		if len(o) > 2 && o[0] == '-' && o[1] != '-' { // -dDIR, as getopt(3) takes it
			other = other || strings.ContainsRune("pr", rune(o[1])) || o[1] == 'd' && v.FSType != "xfs"
		}
		if v.FSType == "xfs" && (strings.Contains(o, "file") || strings.Contains(o, "name=") || strings.Contains(o, "logdev=") || strings.Contains(o, "rtdev=")) {
			other = true
		}
		if strings.Contains(o, "device=") || strings.Contains(o, "journal_dev") {
			other = true
		}
		if other {
			// The word is not repeated: it may be part of a secret that was
			// pasted there, which no redaction would know in parts.
			faults = append(faults, fmt.Sprintf("mkfsOptions: word %d is not taken: mkfs would read from or write to something besides the volume", i+1))
		}
	}
	return faults
}

// forbiddenOptions turn mount(8) or its helpers into something else than a
// mount of the source: a bind of any directory, another helper, a loop device.
func forbiddenOptions() []string {
	return []string{"bind", "rbind", "move", "remount", "loop", "helper", "uhelper", "offset", "sizelimit", "encryption", "lowerdir", "upperdir", "workdir", "make-shared", "make-slave", "make-private", "make-unbindable", "make-rshared", "make-rslave", "make-rprivate"}
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
	case slices.Contains(forbiddenOptions(), name) || strings.HasPrefix(strings.ToLower(name), "x-mount."):
		add("%s is not taken: it would mount something else than the volume", name)
	case (name == "user" || name == "username") && strings.Contains(value, "%"):
		add("%s with a %% gives a password as well, which would show in the node's process list; put both into the volume's Secret", name)
	case hidden && v.Kind != KindSource:
		add("%s: only a volume with source has use for a secret file", name)
	case hidden && secretKey(value) == "":
		add("%s: %s names no key of the volume's Secret", name, value)
	case !hidden && strings.HasPrefix(value, secretFilePrefix):
		add("%s: a secret file is written %s", name, secretFileExample)
	case sensitive.Key(name) && value != "" && !hidden && !isCredentialsFile(name, value):
		add("%s would show in the node's process list; put it into the volume's Secret and give the option the value %s", name, secretFileExample)
	}
	return faults
}

func (v *Volume) checkFSType(user map[string]string) (faults []string) {
	add := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	switch {
	case v.isDisk() && v.FSType != "" && !slices.Contains(diskTypes(), v.FSType):
		add("fsType %q is no filesystem that a disk can have here (those are %s)", v.FSType, strings.Join(diskTypes(), ", "))
	case v.Kind == KindSource && v.FSType == "":
		add("a volume with source needs an fsType (nfs, cifs, ceph, fuse.<program>, …)")
	case v.Kind == KindSource && slices.Contains(diskTypes(), v.FSType):
		add("fsType %s is a filesystem on a disk, which is given with device or image, not with source", v.FSType)
	case v.Kind == KindSource && slices.Contains(localTypes(), v.FSType):
		add("fsType %s is no remote filesystem: it shows the node's own files or state; memory is given with medium, a directory with path", v.FSType)
	case v.Kind == KindSource && !mounter.IsFSType(v.FSType):
		add("fsType %q is no name of a filesystem", v.FSType)
	case (v.Kind == KindPath || v.Kind == KindMemory) && v.FSType != "" && v.FSType != "tmpfs":
		add("fsType %q contradicts %s, which has no filesystem to choose; leave it out", v.FSType, v.Kind)
	case v.Kind == KindImage && v.FSType == "xfs" && v.Size > 0 && v.Size < minXFS:
		add("size %s is too small for xfs, which needs 300Mi", user[optionSize])
	}
	return faults
}

// minXFS is what mkfs.xfs asks for since xfsprogs 5.19.
const minXFS = 300 << 20

func diskTypes() []string { return []string{"ext4", "xfs", "btrfs", "ext3"} }

// localTypes are filesystems that are not asked for by source: they need none,
// or they are on a disk, where deviceRoots and imageRoots bound what may be
// named.
func localTypes() []string {
	return []string{
		"overlay", "aufs", "tmpfs", "ramfs", "proc", "sysfs", "devtmpfs", "devpts", "cgroup", "cgroup2", "debugfs", "tracefs",
		"securityfs", "selinuxfs", "bpf", "hugetlbfs", "mqueue", "pstore", "configfs", "binfmt_misc", "autofs", "fusectl", "fuseblk", "efivarfs",
		"ext2", "vfat", "msdos", "exfat", "ntfs", "ntfs3", "iso9660", "udf", "squashfs", "erofs", "f2fs", "jfs", "reiserfs", "hfsplus", "minix", "none", "auto",
	}
}

// hasPassword: scheme://user:password@host.
func hasPassword(source string) bool {
	_, rest, ok := strings.Cut(source, "://")
	user, _, at := strings.Cut(rest, "@")
	return ok && at && strings.Contains(user, ":")
}
