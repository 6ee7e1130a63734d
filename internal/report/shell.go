package report

// This file quotes words of commands that people copy into a shell.

import "strings"

// Quote returns text quoted for a POSIX shell, without quotes if it needs none.
func Quote(text string) string {
	if text != "" && text[0] != '~' && strings.IndexFunc(text, special) < 0 {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// special reports whether a character may mean something to a shell, or to the eye.
func special(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("_-./:,@%+=~", r)
}
