package flex

import (
	"strings"

	"github.com/flex2csi/flex2csi/internal/guard"
)

// isSecretName reports whether what is called name should be hidden.
func isSecretName(name string) bool {
	return strings.Contains(name, OptionSecretPrefix) || guard.SensitiveKey(name)
}

// keySpans returns where in s values stand that are secret by their name:
// password=…, token = "…", "key":"…", and ://user:…@host.
func keySpans(s string) []span {
	var spans []span
	for i := range len(s) {
		if s[i] != '=' && s[i] != ':' {
			continue
		}
		sp, ok := userInfo(s, i)
		if name, quoted := nameBefore(s, i); !ok && (s[i] == '=' || quoted) && isSecretName(name) {
			sp, ok = valueAfter(s, i+1, s[i] == ':')
		}
		if ok && !strings.HasPrefix(s[sp.start:], redacted) {
			spans = append(spans, sp)
		}
	}
	return spans
}

// nameBefore returns the name that ends before s[i], and whether in quotes.
func nameBefore(s string, i int) (name string, quoted bool) {
	end := i
	for end > 0 && s[end-1] == ' ' {
		end--
	}
	for end > 0 && (isQuote(s[end-1]) || s[end-1] == '\\') {
		end--
		quoted = true
	}
	start := end
	for start > 0 && (isLetterOrDigit(s[start-1]) || strings.IndexByte("_-./", s[start-1]) >= 0) {
		start--
	}
	return s[start:end], quoted
}

// valueAfter returns the value that starts at or after s[i]. After a colon it
// has to be in quotes or to follow at once, as in JSON; else it is prose.
func valueAfter(s string, i int, colon bool) (span, bool) {
	start := i
	for start < len(s) && s[start] == ' ' {
		start++
	}
	open := start
	for open < len(s) && s[open] == '\\' {
		open++
	}
	if open < len(s) && isQuote(s[open]) {
		return span{open + 1, closingQuote(s, open+1, s[start:open+1])}, true
	}
	if colon && start > i {
		return span{}, false
	}
	end := start
	for end < len(s) && strings.IndexByte(" \t\r\n,;&|>)]}\"'`", s[end]) < 0 {
		end++
	}
	return span{start, end}, end > start
}

// closingQuote returns where the quoted text that starts at s[i] ends. The
// quote may itself be escaped, then so is its end.
func closingQuote(s string, i int, quote string) int {
	for ; i < len(s); i++ {
		if strings.HasPrefix(s[i:], quote) {
			return i
		}
		if s[i] == '\\' && len(quote) == 1 {
			i++
		}
	}
	return len(s)
}

// userInfo returns the password in ://user:password@host, by its colon.
func userInfo(s string, colon int) (span, bool) {
	if s[colon] != ':' {
		return span{}, false
	}
	user := strings.LastIndex(s[:colon], "://")
	if user < 0 || strings.ContainsAny(s[user+len("://"):colon], "/?#@: \t\n") {
		return span{}, false
	}
	rest := s[colon+1:]
	host := rest
	if i := strings.IndexAny(rest, "/?# \t\n\"'"); i >= 0 {
		host = rest[:i]
	}
	at := strings.LastIndexByte(host, '@')
	return span{colon + 1, colon + 1 + at}, at > 0
}

func isQuote(c byte) bool { return c == '"' || c == '\'' || c == '`' }
