// Package terminal keeps what a terminal would obey out of the output for people. Texts of
// objects and of other programs may have any characters.
package terminal

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Safe returns a text in which each character that a terminal would obey, or would not show,
// is written as JSON escapes it: controls but the line break and the tab, C1 and bidi controls,
// other invisible ones. In JSON and in quoted YAML the text still means the same.
func Safe(text string) string {
	if !strings.ContainsFunc(text, obeyed) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		switch {
		case !obeyed(r):
			b.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

func obeyed(r rune) bool {
	return unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp) || r == utf8.RuneError
}

// Writer writes to To what [Safe] makes of a text. It is safe for concurrent use.
type Writer struct {
	To io.Writer

	mu   sync.Mutex
	rest []byte // of a character that a Write has cut
}

// Write implements io.Writer.
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := slices.Concat(w.rest, p)
	end := len(text)
	for i := 1; i < utf8.UTFMax && i <= len(text); i++ {
		if last := text[len(text)-i:]; utf8.RuneStart(last[0]) {
			if !utf8.FullRune(last) {
				end -= i
			}
			break
		}
	}
	w.rest = append([]byte(nil), text[end:]...)
	if _, err := io.WriteString(w.To, Safe(string(text[:end]))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Unwrap returns what is written to, for questions about it and for escape sequences of the
// program's own.
func (w *Writer) Unwrap() io.Writer { return w.To }
