package allow

import (
	"iter"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// A list is a list of options as text, a line for each kind of value:
//
//	NAME NAME ...: GRAMMAR
//
// A grammar is one of these:
//
//   - no value
//     [G]           the value may be left out; otherwise G
//     1..300        a number
//     4k..64k       a number, or one with a unit: k, m or g
//     a|b|c         one of these words
//     octal         a file mode
//     name          a letter or digit, then letters, digits, dots, dashes, underscores
//     host, hosts   a DNS name or address; several, separated by colons
//     url           http or https, a host and a port
//     context       an SELinux label
//     secret        $(secretFile:KEY)
type list string

// lines returns the names and the grammar of each line.
func (l list) lines() iter.Seq2[[]string, string] {
	return func(yield func([]string, string) bool) {
		for line := range strings.Lines(string(l)) {
			names, grammar, ok := strings.Cut(strings.TrimSpace(line), ": ")
			if ok && !yield(strings.Fields(names), grammar) {
				return
			}
		}
	}
}

// grammar returns the grammar of an option; "" if the option is not on the list.
func (l list) grammar(option string) string {
	for names, grammar := range l.lines() {
		if slices.Contains(names, option) {
			return grammar
		}
	}
	return ""
}

func (l list) names() (all []string) {
	for names := range l.lines() {
		all = append(all, names...)
	}
	return all
}

// maxValue is more than any value needs.
const maxValue = 1024

// matches reports whether an option of the grammar may have a value; given says
// that there is one.
func matches(grammar, value string, given bool) bool {
	if optional, ok := strings.CutPrefix(grammar, "["); ok {
		return !given || matches(strings.TrimSuffix(optional, "]"), value, true)
	}
	if grammar == "-" || grammar == "" || !given {
		return grammar == "-" && !given
	}
	if value == "" || len(value) > maxValue {
		return false
	}
	return matchesValue(grammar, value)
}

func matchesValue(grammar, value string) bool {
	switch grammar {
	case "octal":
		return len(value) <= 5 && strings.Trim(value, "01234567") == ""
	case "name":
		return isName(value, 63)
	case "host":
		return isHost(value)
	case "hosts":
		return all(strings.Split(value, ":"), isHost)
	case "url":
		return isURL(value)
	case "context":
		return IsContext(strings.Trim(value, `"`)) && (strings.Count(value, `"`) == 0 || len(value) > 2 && value[0] == '"' && value[len(value)-1] == '"')
	case "secret":
		return SecretKey(value) != ""
	}
	if low, high, ok := strings.Cut(grammar, ".."); ok {
		return inRange(low, high, value)
	}
	return slices.Contains(strings.Split(grammar, "|"), value)
}

func all(values []string, good func(string) bool) bool {
	return !slices.ContainsFunc(values, func(s string) bool { return !good(s) })
}

// inRange compares numbers. Units are taken only where the range has them.
func inRange(low, high, value string) bool {
	units := strings.ContainsAny(low+high, "kmg")
	if !units && !isNumber(value) {
		return false
	}
	least, ok1 := size(low)
	most, ok2 := size(high)
	n, ok3 := size(strings.ToLower(value))
	return ok1 && ok2 && ok3 && least <= n && n <= most
}

// size reads digits and a unit.
func size(s string) (uint64, bool) {
	digits := strings.TrimRight(s, "kmg")
	if !isNumber(digits) || len(s)-len(digits) > 1 {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 40)
	if err != nil {
		return 0, false
	}
	unit := map[string]int{"": 0, "k": 10, "m": 20, "g": 30}[s[len(digits):]]
	return n << unit, n < 1<<(40-unit)
}

func isNumber(s string) bool {
	return s != "" && len(s) <= 15 && strings.Trim(s, "0123456789") == ""
}

// only reports whether s begins with a letter or digit and has no characters
// but letters, digits and those of more.
func only(s, more string) bool {
	for i, r := range s {
		if !isAlphanumeric(r) && (i == 0 || !strings.ContainsRune(more, r)) {
			return false
		}
	}
	return s != ""
}

func isAlphanumeric(r rune) bool {
	return r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r))
}

func isName(s string, limit int) bool { return len(s) <= limit && only(s, "._-") }

// isHost takes DNS names, IPv4 addresses, and IPv6 addresses in brackets.
func isHost(s string) bool {
	if inner, ok := strings.CutPrefix(s, "["); ok {
		inner, closed := strings.CutSuffix(inner, "]")
		return closed && inner != "" && len(inner) <= 45 && strings.Trim(inner, "0123456789abcdefABCDEF:.") == ""
	}
	return len(s) <= 253 && only(s, ".-_")
}

func isURL(s string) bool {
	rest, ok := strings.CutPrefix(s, "https://")
	if !ok {
		rest, ok = strings.CutPrefix(s, "http://")
	}
	return ok && isHostPort(rest)
}

func isHostPort(s string) bool {
	if i := strings.LastIndexByte(s, ':'); i >= 0 && !strings.HasSuffix(s, "]") {
		return isHost(s[:i]) && isNumber(s[i+1:])
	}
	return isHost(s)
}

// IsContext reports whether s is an SELinux label, user:role:type[:level]. Only the
// level has commas, between categories: mount(8), a helper or the kernel may take those
// of another value for the end of the option.
func IsContext(s string) bool {
	parts := strings.SplitN(s, ":", 4)
	if len(s) > 255 || len(parts) < 3 || !all(parts[:3], func(p string) bool { return isName(p, 255) }) {
		return false
	}
	return len(parts) == 3 || all(strings.SplitN(parts[3], "-", 2), isLevel)
}

// isLevel takes s0 and s0:c1,c3.c5 (SELinux Notebook, "MLS range").
func isLevel(s string) bool {
	sensitivity, categories, given := strings.Cut(s, ":")
	category := func(c string) bool {
		return all(strings.SplitN(c, ".", 2), func(c string) bool { return numbered(c, "c") })
	}
	return numbered(sensitivity, "s") && (!given || all(strings.Split(categories, ","), category))
}

func numbered(s, letter string) bool {
	n, ok := strings.CutPrefix(s, letter)
	return ok && isNumber(n)
}

// SecretKey returns the KEY of $(secretFile:KEY), or "".
func SecretKey(value string) string {
	key, ok := strings.CutPrefix(value, "$(secretFile:")
	key, closed := strings.CutSuffix(key, ")")
	if !ok || !closed || key == "" || len(key) > 253 || strings.ContainsFunc(key, func(r rune) bool { return !isAlphanumeric(r) && !strings.ContainsRune("._-", r) }) {
		return ""
	}
	return key
}

// describe says for people what values a grammar takes.
func describe(grammar string) string {
	switch grammar {
	case "-":
		return "no value"
	case "octal":
		return "an octal mode"
	case "name":
		return "a name (letters, digits, `.`, `-`, `_`)"
	case "host":
		return "a host name or address"
	case "hosts":
		return "host names or addresses, separated by colons"
	case "url":
		return "`https://HOST:PORT`"
	case "context":
		return "a label `user:role:type:level`, in double quotes if it has a comma"
	case "secret":
		return "`$(secretFile:KEY)`"
	}
	if optional, ok := strings.CutPrefix(grammar, "["); ok {
		return "none, or " + describe(strings.TrimSuffix(optional, "]"))
	}
	if low, high, ok := strings.Cut(grammar, ".."); ok {
		return low + " to " + high
	}
	return quoted(strings.Split(grammar, "|"))
}

func quoted(words []string) string {
	return "`" + strings.Join(words, "`, `") + "`"
}
