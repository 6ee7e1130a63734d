package flex

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// A secret can be spelled in many ways, and errors mix them: a URL in a JSON
// object in a quoted string. So a secret is compared with a text character by
// character, each in any of its spellings, rather than looked up in a list.

// escapes are the bytes that an escaped character can start with.
const escapes = `%+&\`

// leastPart is how many characters of a secret at the end of a text are taken
// for it: something cut the text off in the middle.
const leastPart = 4

// spelledAt returns where in s a spelling of text ends that starts at start,
// the longest one if there are several, or -1.
func spelledAt(s string, start int, text string) int {
	// The places that the spellings of text up to here can reach. There are few
	// at any time, and more than one only after an escape in text itself.
	n := plainPrefix(s[start:], text)
	places := []int{start + n}
	for text = text[n:]; text != ""; n++ {
		r, size := utf8.DecodeRuneInString(text)
		if r == '\\' {
			size = len(text) - len(strings.TrimLeft(text, `\`))
		}
		var next []int
		for _, place := range places {
			for _, end := range spellings(s, place, text[:size], r) {
				if !slices.Contains(next, end) {
					next = append(next, end)
				}
			}
		}
		if len(next) == 0 {
			cut := func(place int) bool { return isCut(s[place:], text) }
			if n >= leastPart && slices.ContainsFunc(places, cut) {
				return len(s)
			}
			return -1
		}
		places, text = next, text[size:]
	}
	return slices.Max(places)
}

// plainPrefix returns how many bytes of text stand at the beginning of s with
// nothing to interpret. It is most of the work done at little cost.
func plainPrefix(s, text string) int {
	n := 0
	for n < len(s) && n < len(text) && s[n] == text[n] && s[n] < utf8.RuneSelf && strings.IndexByte(escapes, s[n]) < 0 {
		n++
	}
	return n
}

// isCut reports whether what is left of a text can be the beginning of what is
// left of a secret, of which it then lacks the end.
func isCut(rest, secret string) bool {
	const longest = len(`\U12345678`)
	return strings.HasPrefix(secret, rest) || len(rest) < longest && strings.IndexByte(escapes, rest[0]) >= 0
}

// spellings returns the ends of all spellings at s[i:] of one character r,
// with the bytes char, or of a run of backslashes.
func spellings(s string, i int, char string, r rune) []int {
	if i >= len(s) {
		return nil
	}
	var ends []int
	switch {
	case r == '\\':
		return backslashEnds(s, i, len(char))
	case strings.HasPrefix(s[i:], char):
		ends = append(ends, i+len(char))
	}
	if r == utf8.RuneError && strings.HasPrefix(s[i:], string(r)) {
		ends = append(ends, i+len(string(r))) // a byte that is no text, after JSON or the like
	}
	if s[i] == '+' && r == ' ' {
		ends = append(ends, i+1)
	}
	return appendEnd(ends, escapeEnd(s, i, char, r))
}

// backslashEnds reads a run of n backslashes. Each may be doubled any number of
// times, and the last one of the run may be the next character's.
func backslashEnds(s string, i, n int) []int {
	var ends []int
	if run := backslashes(s, i); run >= n {
		ends = append(ends, i+run)
		if run > n {
			ends = append(ends, i+run-1)
		}
	}
	for ; n > 0 && i >= 0; n-- {
		i = escapeEnd(s, i, `\`, '\\')
	}
	return appendEnd(ends, i)
}

// backslashes returns how many there are at s[i:].
func backslashes(s string, i int) int {
	n := 0
	for i+n < len(s) && s[i+n] == '\\' {
		n++
	}
	return n
}

func appendEnd(ends []int, end int) []int {
	if end < 0 {
		return ends
	}
	return append(ends, end)
}

// escapeEnd reads one character that is escaped in any way.
func escapeEnd(s string, i int, char string, r rune) int {
	switch {
	case i >= len(s):
		return -1
	case s[i] == '%':
		return percentEnd(s, i, char)
	case s[i] == '&':
		return htmlEnd(s, i, r)
	case s[i] == '\\':
		return backslashedEnd(s, i, char, r)
	}
	return -1
}

// percentEnd reads %XX for each byte of char.
func percentEnd(s string, i int, char string) int {
	for j := range len(char) {
		if i+3 > len(s) || s[i] != '%' || number(s[i+1:i+3], 16) != int64(char[j]) {
			return -1
		}
		i += 3
	}
	return i
}

// htmlEnd reads a named or numbered reference.
func htmlEnd(s string, i int, r rune) int {
	rest := s[i:min(len(s), i+12)]
	name, _, ok := strings.Cut(rest[1:], ";")
	if !ok {
		return -1
	}
	named := strings.IndexRune("&<>\"'", r)
	switch {
	case named >= 0 && name == [...]string{"amp", "lt", "gt", "quot", "apos"}[named],
		strings.HasPrefix(name, "#x") && number(name[2:], 16) == int64(r),
		strings.HasPrefix(name, "#") && number(name[1:], 10) == int64(r):
		return i + len(name) + len("&;")
	}
	return -1
}

// backslashedEnd reads a character after one or, if it was quoted several
// times, more backslashes.
func backslashedEnd(s string, i int, char string, r rune) int {
	i += backslashes(s, i)
	if end := unicodeEnd(s, i, r); end >= 0 {
		return end
	}
	if end := bytesEnd(s, i, char); end >= 0 {
		return end
	}
	if letter := strings.IndexRune("\a\b\f\n\r\t\v\x1b\x00", r); letter >= 0 && i < len(s) && s[i] == "abfnrtve0"[letter] {
		return i + 1
	}
	if r != '\\' && strings.HasPrefix(s[i:], char) && !isLetterOrDigit(char[0]) {
		return i + len(char) // \" \/ \, \$
	}
	return -1
}

// unicodeEnd reads u1234 or U12345678 at s[i:], or a pair of surrogates.
func unicodeEnd(s string, i int, r rune) int {
	switch {
	case i+9 <= len(s) && s[i] == 'U' && number(s[i+1:i+9], 16) == int64(r):
		return i + 9
	case i+5 > len(s) || s[i] != 'u':
		return -1
	case number(s[i+1:i+5], 16) == int64(r):
		return i + 5
	}
	high, low := utf16.EncodeRune(r)
	if high == utf8.RuneError || number(s[i+1:i+5], 16) != int64(high) {
		return -1
	}
	j := i + 5 + backslashes(s, i+5)
	if j+5 <= len(s) && s[j] == 'u' && number(s[j+1:j+5], 16) == int64(low) {
		return j + 5
	}
	return -1
}

// bytesEnd reads x41 or 101 for each byte of char, with backslashes between.
func bytesEnd(s string, i int, char string) int {
	for j := range len(char) {
		if j > 0 {
			i += backslashes(s, i)
		}
		if i+3 > len(s) {
			return -1
		}
		hexadecimal := s[i] == 'x' && number(s[i+1:i+3], 16) == int64(char[j])
		if !hexadecimal && number(s[i:i+3], 8) != int64(char[j]) {
			return -1
		}
		i += 3
	}
	return i
}

// number reads digits, and gives -1 if they are none.
func number(digits string, base int) int64 {
	n, err := strconv.ParseUint(digits, base, 32)
	if err != nil {
		return -1
	}
	return int64(n)
}

func isLetterOrDigit(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
