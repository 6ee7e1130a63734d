package local

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/flex2csi/flex2csi/pkg/mounter"
)

// checkDevice looks at the form of the option only.
func checkDevice(s string) error {
	tag, value, ok := strings.Cut(s, "=")
	if !ok || strings.HasPrefix(s, "/") {
		if name, found := strings.CutPrefix(s, "/dev/disk/by-"); found && isContentName(name) {
			return errors.New("who writes to a disk chooses this name, and can choose that of another: name it in /dev/disk/by-id, or as UUID= or PARTUUID=")
		}
		return mounter.CheckPath(s)
	}
	switch tag {
	case "UUID", "PARTUUID":
	case "LABEL", "PARTLABEL":
		return fmt.Errorf("%s= is not taken: who writes to a disk chooses its label, and can guess that of another; name it in /dev/disk/by-id, or as UUID= or PARTUUID=", tag)
	default:
		hint := ""
		if upper := strings.ToUpper(tag); upper == "UUID" || upper == "PARTUUID" {
			hint = "; did you mean " + upper + "=?"
		}
		return fmt.Errorf("%s= is not known: a device is a path, UUID= or PARTUUID=%s", tag, hint)
	}
	if value == "" || value == "." || value == ".." || strings.ContainsAny(value, "/\x00") {
		return fmt.Errorf("%q cannot be a %s", value, tag)
	}
	return nil
}

// isTag reports whether a device is not given by its path.
func isTag(s string) bool { return strings.Contains(s, "=") && !strings.HasPrefix(s, "/") }

// isContentName reports whether udev takes a name below /dev/disk/by- from what is on the
// disk.
func isContentName(name string) bool {
	by, _, _ := strings.Cut(name, "/")
	return slices.Contains([]string{"label", "partlabel", "uuid", "partuuid"}, by)
}
