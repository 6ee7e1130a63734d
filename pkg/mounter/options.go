package mounter

import (
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// mountOptions are the options of one mount, sorted by who understands them.
type mountOptions struct {
	attrs    int      // MOUNT_ATTR_*: of this mount alone
	readOnly bool     // the filesystem itself
	fs       []string // for the filesystem: name or name=value
}

// attrOf returns the bits that an option sets and clears in a mount's
// attributes (mount(8), "filesystem-independent mount options").
func attrOf(option string) (set, clear int, ok bool) {
	switch option {
	case "nosuid":
		return unix.MOUNT_ATTR_NOSUID, 0, true
	case "suid":
		return 0, unix.MOUNT_ATTR_NOSUID, true
	case "nodev":
		return unix.MOUNT_ATTR_NODEV, 0, true
	case "dev":
		return 0, unix.MOUNT_ATTR_NODEV, true
	case "noexec":
		return unix.MOUNT_ATTR_NOEXEC, 0, true
	case "exec":
		return 0, unix.MOUNT_ATTR_NOEXEC, true
	case "nodiratime":
		return unix.MOUNT_ATTR_NODIRATIME, 0, true
	case "diratime":
		return 0, unix.MOUNT_ATTR_NODIRATIME, true
	case "noatime":
		return unix.MOUNT_ATTR_NOATIME, unix.MOUNT_ATTR__ATIME, true
	case "strictatime":
		return unix.MOUNT_ATTR_STRICTATIME, unix.MOUNT_ATTR__ATIME, true
	case "relatime", "atime":
		return unix.MOUNT_ATTR_RELATIME, unix.MOUNT_ATTR__ATIME, true
	case "nosymfollow":
		return unix.MOUNT_ATTR_NOSYMFOLLOW, 0, true
	}
	return 0, 0, false
}

// userspaceOnly reports options that mount(8) keeps to itself.
func userspaceOnly(option string) bool {
	name, _, _ := strings.Cut(option, "=")
	switch name {
	case "defaults", "auto", "noauto", "user", "nouser", "users", "owner", "group", "_netdev", "nofail", "comment":
		return true
	}
	return strings.HasPrefix(name, "x-") || strings.HasPrefix(name, "X-")
}

// parseOptions sorts options. Later ones win over earlier ones, as in mount(8).
func parseOptions(options []string) mountOptions {
	var o mountOptions
	for _, option := range options {
		set, unset, isAttr := attrOf(option)
		switch {
		case isAttr:
			o.attrs = o.attrs&^unset | set
		case option == "ro":
			o.readOnly = true
		case option == "rw":
			o.readOnly = false
		case !userspaceOnly(option):
			o.fs = append(o.fs, strings.ReplaceAll(option, `"`, ""))
		}
	}
	return o
}

// isLabel reports the options of SELinux (mount(8), "context").
func isLabel(option string) bool {
	name, _, _ := strings.Cut(option, "=")
	return slices.Contains([]string{"context", "fscontext", "defcontext", "rootcontext"}, name)
}

// withoutLabels returns o as it is to be used where SELinux is off and the
// kernel does not know them. mount(8) does the same.
func (o mountOptions) withoutLabels() mountOptions {
	o.fs = slices.DeleteFunc(slices.Clone(o.fs), isLabel)
	return o
}

func hasSELinux() bool {
	filesystems, err := os.ReadFile("/proc/filesystems")
	return err == nil && strings.Contains(string(filesystems), "\tselinuxfs\n")
}

// mountAttrs are the attributes of the mount itself.
func (o mountOptions) mountAttrs() int {
	if o.readOnly {
		return o.attrs | unix.MOUNT_ATTR_RDONLY
	}
	return o.attrs
}

// classicFlags translates to the flags of mount(2), which bundles what
// belongs to the mount and what belongs to the filesystem.
func (o mountOptions) classicFlags() (flags uintptr, data string) {
	for _, p := range [...]struct {
		attr int
		flag uintptr
	}{
		{unix.MOUNT_ATTR_NOSUID, unix.MS_NOSUID},
		{unix.MOUNT_ATTR_NODEV, unix.MS_NODEV},
		{unix.MOUNT_ATTR_NOEXEC, unix.MS_NOEXEC},
		{unix.MOUNT_ATTR_NODIRATIME, unix.MS_NODIRATIME},
		{unix.MOUNT_ATTR_NOATIME, unix.MS_NOATIME},
		{unix.MOUNT_ATTR_STRICTATIME, unix.MS_STRICTATIME},
		{unix.MOUNT_ATTR_NOSYMFOLLOW, unix.MS_NOSYMFOLLOW},
		{unix.MOUNT_ATTR_RDONLY, unix.MS_RDONLY},
	} {
		if o.mountAttrs()&p.attr != 0 {
			flags |= p.flag
		}
	}
	fs := slices.Clone(o.fs)
	for name, flag := range map[string]uintptr{"sync": unix.MS_SYNCHRONOUS, "dirsync": unix.MS_DIRSYNC, "lazytime": unix.MS_LAZYTIME} {
		if i := slices.Index(fs, name); i >= 0 {
			flags |= flag
			fs = slices.Delete(fs, i, i+1)
		}
	}
	for i, option := range fs {
		// A label has commas; the quotes are SELinux's own (security/selinux/hooks.c,
		// selinux_sb_eat_lsm_opts).
		if name, value, _ := strings.Cut(option, "="); isLabel(option) {
			fs[i] = name + `="` + value + `"`
		}
	}
	return flags, strings.Join(fs, ",")
}
