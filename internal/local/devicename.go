package local

import (
	"fmt"
	"strings"

	"github.com/flex2csi/flex2csi/pkg/mounter"
)

// tags are the names by which a device can be given besides a path, with the
// directory where udev links them.
func tags() map[string]string {
	return map[string]string{
		"UUID":      "/dev/disk/by-uuid",
		"LABEL":     "/dev/disk/by-label",
		"PARTUUID":  "/dev/disk/by-partuuid",
		"PARTLABEL": "/dev/disk/by-partlabel",
	}
}

// checkDevice looks at the form of the option only.
func checkDevice(s string) error {
	tag, value, ok := strings.Cut(s, "=")
	if !ok || strings.HasPrefix(s, "/") {
		return mounter.CheckPath(s)
	}
	if _, known := tags()[tag]; !known {
		hint := ""
		if _, known := tags()[strings.ToUpper(tag)]; known {
			hint = "; did you mean " + strings.ToUpper(tag) + "=?"
		}
		return fmt.Errorf("%s= is not known: a device is a path, UUID=, LABEL=, PARTUUID= or PARTLABEL=%s", tag, hint)
	}
	if value == "" || value == "." || value == ".." || strings.ContainsAny(value, "/\x00") {
		return fmt.Errorf("%q cannot be a %s", value, tag)
	}
	return nil
}

// isTag reports whether a device is not given by its path.
func isTag(s string) bool { return strings.Contains(s, "=") && !strings.HasPrefix(s, "/") }

// udevEscape writes a label as udev names its link (util-linux, blkid
// encode_string): all but a few characters as \xNN.
func udevEscape(s string) string {
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if c >= 0x80 || c == '#' || strings.IndexByte("+-.:=@_", c) >= 0 || c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, `\x%02x`, c)
		}
	}
	return b.String()
}
