package guard

// This file knows by name which options carry credentials. It is the second
// line of defense behind types that cannot be printed, for text such as mount options.

import "strings"

// Mask stands for a value that must not be shown.
const Mask = "[redacted]"

// endings are the endings of names with values that are secret. Hiding a value too many
// does no harm.
const endings = "password passwd passphrase pass pwd secret token tokens key credential credentials cred sas signature akid accesskeyid"

// SensitiveKey reports whether a value called name is to be kept out of every text.
func SensitiveKey(name string) bool {
	name = strings.TrimRight(strings.ToLower(name), "0123456789") // password2 of mount.cifs(8)
	for ending := range strings.SplitSeq(endings, " ") {
		if strings.HasSuffix(name, ending) {
			return name != "nopass"
		}
	}
	return false
}

// MaskOptions returns options with the values of sensitive ones masked. The
// argument stays as it is.
func MaskOptions(options []string) []string {
	out := make([]string, len(options))
	for i, o := range options {
		if name, _, ok := strings.Cut(o, "="); ok && SensitiveKey(name) {
			o = name + "=" + Mask
		}
		out[i] = o
	}
	return out
}
