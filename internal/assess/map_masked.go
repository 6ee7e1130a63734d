package assess

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"

	"github.com/flex2csi/flex2csi/pkg/flex"
)

// isMasked reports whether a value stands for a secret that a program or a person has masked:
// stars, dots or crosses, or a text such as [redacted].
func isMasked(value string) bool {
	word := strings.ToLower(strings.Trim(strings.TrimSpace(value), "*•.[]<>()-_ "))
	return value != "" && (word == "" || strings.Trim(word, "x") == "" && len(word) > 2 ||
		slices.Contains([]string{"redacted", "masked", "hidden", "stripped", "removed", "secret", "sanitized", "omitted"}, word))
}

// masked notes that a key of the Secret is there, and nothing more.
func (v *FlexVolume) masked(key string) {
	v.Options.Secrets[key] = flex.NewSecret([]byte(notKnown))
	v.note("the value of " + key + " in the volume's Secret is masked: present, unknown")
}

// unmask makes the arguments of a call readable in which a log has masked the secrets, and
// returns their keys.
func unmask(args []string) (readable, keys []string) {
	readable = slices.Clone(args)
	for i, arg := range args {
		var options map[string]string
		if !strings.HasPrefix(arg, "{") || json.Unmarshal([]byte(arg), &options) != nil {
			continue
		}
		for name, value := range options {
			if key, ok := strings.CutPrefix(name, flex.OptionSecretPrefix); ok && isMasked(value) {
				options[name] = base64.StdEncoding.EncodeToString([]byte(notKnown))
				keys = append(keys, key)
			}
		}
		if text, err := json.Marshal(options); err == nil && len(keys) > 0 {
			readable[i] = string(text)
		}
	}
	slices.Sort(keys)
	return readable, keys
}
