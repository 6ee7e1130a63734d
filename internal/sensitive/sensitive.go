// Package sensitive knows by name which options carry credentials. It is the
// net below types that cannot be printed: for text whose parts have only
// names left to judge by, such as mount options.
package sensitive

import "strings"

// Mask stands for a value that must not be shown.
const Mask = "[redacted]"

// Key reports whether a value called name is to be kept out of every text.
// It errs on the side of masking: "secretfile" is a path, and masked.
func Key(name string) bool {
	name = strings.ToLower(name)
	for _, part := range [...]string{"pass", "secret", "token", "credential", "private", "auth_key", "accountkey", "accesskey", "access_key", "apikey", "api_key", "sas", "pwd"} {
		if strings.Contains(name, part) {
			return !strings.HasPrefix(name, "x-") && name != "nopass"
		}
	}
	return name == "key" || name == "cred" || name == "auth"
}

// MaskOptions returns options with the values of sensitive ones masked. The
// argument stays as it is.
func MaskOptions(options []string) []string {
	out := make([]string, len(options))
	for i, o := range options {
		if name, _, ok := strings.Cut(o, "="); ok && Key(name) {
			o = name + "=" + Mask
		}
		out[i] = o
	}
	return out
}
