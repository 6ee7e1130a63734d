package flex

import (
	"encoding/base64"
	"encoding/hex"
	"strings"
	"unicode/utf8"
)

// shortValue is the length below which a value is hardly a secret, but something like
// "on" or "3" in a Secret.
const shortValue = 4

// needle is one form of a secret to look for.
type needle struct {
	text   string
	word   bool // only between things that are no letter or digit
	base64 bool // with what is around it in the same encoding
}

// add makes the forms of one value. Escapes are no forms: see spelling.
func (r *Redactor) add(value string) {
	trimmed := strings.TrimSpace(value) // drivers drop the newline of a file
	if trimmed == "" {
		return
	}
	r.addPlain(trimmed)
	if len(trimmed) < shortValue {
		return
	}
	r.addBase64(trimmed)
	r.needles = append(r.needles,
		needle{text: hex.EncodeToString([]byte(trimmed))},
		needle{text: strings.ToUpper(hex.EncodeToString([]byte(trimmed)))})
	// The lines of a key or a configuration file turn up one by one.
	if lines := strings.Split(trimmed, "\n"); len(lines) > 1 {
		for _, line := range lines {
			if line = strings.TrimSpace(line); len(line) >= 2*shortValue {
				r.addPlain(line)
			}
		}
	}
}

func (r *Redactor) addPlain(value string) {
	r.needles = append(r.needles, needle{text: value, word: len(value) < shortValue})
	if len(value) < shortValue {
		encoded := base64.StdEncoding.EncodeToString([]byte(value))
		r.needles = append(r.needles, needle{text: encoded, word: true})
	}
}

// addBase64 looks for the characters that the value alone decides, wherever it
// starts within the three bytes that make four characters. What is around them
// depends on the neighbours and on padding, and is taken along.
func (r *Redactor) addBase64(value string) {
	const least = 4 // characters: four bytes decide that many, wherever they start
	for offset := range 3 {
		bytes := append(make([]byte, offset), value...)
		start, end := (offset*8+5)/6, len(bytes)*8/6
		if end-start < least {
			continue
		}
		for _, alphabet := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			text := alphabet.EncodeToString(bytes)[start:end]
			r.needles = append(r.needles, needle{text: text, base64: true})
		}
	}
}

func isBase64(c byte) bool {
	return isLetterOrDigit(c) || c == '+' || c == '/' || c == '-' || c == '_'
}

// valueSpans returns where in s any form of a secret stands.
func (r *Redactor) valueSpans(s string) []span {
	var spans []span
	for _, n := range r.needles {
		for start := 0; start < len(s); start++ {
			if !canStart(n.text[0], s[start]) {
				continue
			}
			end := spelledAt(s, start, n.text)
			if end < 0 || n.word && !isWord(s, start, end) {
				continue
			}
			sp := n.around(s, span{start, end})
			spans = append(spans, sp)
			if n.base64 {
				start = sp.end - 1
			}
		}
	}
	return spans
}

// canStart rules out most places at once. A byte that is no ASCII can stand for
// a replacement character.
func canStart(want, got byte) bool {
	return want == got || want >= utf8.RuneSelf || strings.IndexByte(escapes, got) >= 0
}

func (n needle) around(s string, sp span) span {
	for n.base64 && sp.start > 0 && isBase64(s[sp.start-1]) {
		sp.start--
	}
	for n.base64 && sp.end < len(s) && (isBase64(s[sp.end]) || s[sp.end] == '=') {
		sp.end++
	}
	return sp
}

func isWord(s string, start, end int) bool {
	return (start == 0 || !isWordByte(s[start-1])) && (end == len(s) || !isWordByte(s[end]))
}

func isWordByte(c byte) bool { return isLetterOrDigit(c) || c == '_' || c >= 0x80 }
