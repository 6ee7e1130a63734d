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

// spelledAt returns where in s a spelling of text ends that starts at start,
// the longest one if there are several, or -1.
func spelledAt(s string, start int, text string) int {
	// The places that the spellings of text up to here can reach. There is
	// more than one only where text has backslashes of its own.
	places := []int{start}
	for text != "" {
		r, size := utf8.DecodeRuneInString(text)
		var next []int
		for _, place := range places {
			ends := spellings(s, place, text[:size], r)
			if r == utf8.RuneError { // a byte that is no text, and what JSON makes of it
				ends = append(ends, spellings(s, place, string(r), r)...)
			}
			for _, end := range ends {
				if !slices.Contains(next, end) {
					next = append(next, end)
				}
			}
		}
		if len(next) == 0 {
			return -1
		}
		places, text = next, text[size:]
	}
	return slices.Max(places)
}

// spellings returns the ends of all spellings of one character at s[i:].
func spellings(s string, i int, char string, r rune) []int {
	if i >= len(s) {
		return nil
	}
	var ends []int
	if strings.HasPrefix(s[i:], char) {
		ends = append(ends, i+len(char))
	}
	switch s[i] {
	case '%':
		ends = appendEnd(ends, percentEnd(s, i, char))
	case '+':
		if char == " " {
			ends = append(ends, i+1)
		}
	case '&':
		ends = appendEnd(ends, htmlEnd(s, i, r))
	case '\\':
		ends = appendBackslashed(ends, s, i, char, r)
	}
	return ends
}

func appendEnd(ends []int, end int) []int {
	if end < 0 {
		return ends
	}
	return append(ends, end)
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

// appendBackslashed reads a character after one or, if it was quoted several
// times, more backslashes. A backslash of the secret's own is any number of
// them.
func appendBackslashed(ends []int, s string, i int, char string, r rune) []int {
	run := i
	for run < len(s) && s[run] == '\\' {
		run++
	}
	if r == '\\' {
		for end := i + 2; end <= run; end++ {
			ends = append(ends, end)
		}
	}
	if strings.HasPrefix(s[run:], char) && !isLetterOrDigit(char[0]) {
		ends = append(ends, run+len(char)) // \" \/ \, \$
	}
	if letter := strings.IndexRune("\a\b\f\n\r\t\v\x1b\x00", r); letter >= 0 && run < len(s) && s[run] == "abfnrtve0"[letter] {
		ends = append(ends, run+1)
	}
	ends = appendEnd(ends, unicodeEnd(s, run, r))
	return appendEnd(ends, bytesEnd(s, run, char))
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
	j := i + 5
	for j < len(s) && s[j] == '\\' {
		j++
	}
	if j+5 <= len(s) && s[j] == 'u' && number(s[j+1:j+5], 16) == int64(low) {
		return j + 5
	}
	return -1
}

// bytesEnd reads x41 or 101 for each byte of char, with backslashes between.
func bytesEnd(s string, i int, char string) int {
	for j := range len(char) {
		for j > 0 && i < len(s) && s[i] == '\\' {
			i++
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
