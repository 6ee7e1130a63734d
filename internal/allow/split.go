package allow

import (
	"errors"
	"strings"
)

// SplitOptions splits a list of mount options at commas, as mount(8) does: not inside of
// double quotes, which stay. Blanks around an option are removed, and empty options.
func SplitOptions(s string) (options []string, err error) {
	start, quoted := 0, false
	for i := range len(s) + 1 {
		switch {
		case i < len(s) && s[i] == '"':
			quoted = !quoted
		case i == len(s), s[i] == ',' && !quoted:
			if option := strings.TrimSpace(s[start:i]); option != "" {
				options = append(options, option)
			}
			start = i + 1
		}
	}
	if quoted {
		return nil, errors.New("a double quote is not closed")
	}
	return options, nil
}
