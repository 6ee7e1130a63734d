package terminal_test

import (
	"strings"
	"testing"

	"github.com/flex2csi/flex2csi/internal/terminal"
)

// TestWriter: characters that a terminal obeys came through, C1 controls and bidi controls in
// particular: only those below 0x20 were removed, and not everywhere.
func TestWriter(t *testing.T) {
	for in, want := range map[string]string{
		"a\tb\n":             "a\tb\n",
		"日本 é 😀":             "日本 é 😀",
		"\x1b[2J\r\x07\x7f":  `\u001b[2J\u000d\u0007\u007f`,
		"a\u009b31m":         `a\u009b31m`,
		"pv\u202egpj.exe":    `pv\u202egpj.exe`,
		"\u2066\u200b\ufeff": `\u2066\u200b\ufeff`,
		"\u2028\u00ad":       `\u2028\u00ad`,
		"raw \x9b31m":        `raw \ufffd31m`,
		"\U000e0041":         `\udb40\udc41`,
	} {
		for cut := 1; cut <= len(in); cut++ { // also within a character
			var b strings.Builder
			w := &terminal.Writer{To: &b}
			for rest := []byte(in); len(rest) > 0; rest = rest[min(cut, len(rest)):] {
				if n, err := w.Write(rest[:min(cut, len(rest))]); err != nil || n != min(cut, len(rest)) {
					t.Fatal(n, err)
				}
			}
			if b.String() != want {
				t.Errorf("%q in pieces of %d: %q, want %q", in, cut, b.String(), want)
			}
		}
	}
}
