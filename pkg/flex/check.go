package flex

import (
	"path"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	maxName = 253  // of a Kubernetes object: a DNS subdomain
	maxPath = 4095 // PATH_MAX without its NUL
)

// checkText accepts one line of text that is not a misplaced JSON argument.
func checkText(s string) error {
	switch {
	case looksLikeJSON(s):
		return Errorf(CodeInvalidArgument, "is a JSON object: are the arguments in the right order?")
	case len(s) > maxPath:
		return Errorf(CodeInvalidArgument, "is %d bytes long: at most %d are allowed", len(s), maxPath)
	case !utf8.ValidString(s):
		return Errorf(CodeInvalidArgument, "%s is not valid UTF-8", describe(s))
	case strings.ContainsFunc(s, unicode.IsControl):
		return Errorf(CodeInvalidArgument, "%s contains a control character, such as a newline or NUL", describe(s))
	}
	return nil
}

// checkName accepts the name of a Kubernetes object. Drivers put names into
// paths and commands, hence the characters that are refused.
func checkName(s string) error {
	if err := checkText(s); err != nil {
		return err
	}
	switch {
	case s == "":
		return Errorf(CodeInvalidArgument, "is empty")
	case len(s) > maxName:
		return Errorf(CodeInvalidArgument, "is %d bytes long: at most %d are allowed", len(s), maxName)
	case s == "." || s == ".." || strings.HasPrefix(s, "-") || strings.ContainsFunc(s, isNoNameRune):
		return Errorf(CodeInvalidArgument, "%s is not the name of a Kubernetes object", describe(s))
	}
	return nil
}

func isNoNameRune(r rune) bool { return r == '/' || r == '\\' || unicode.IsSpace(r) }

// checkDir accepts an absolute and clean path. The kubelet makes its paths
// with filepath.Join, which leaves nothing to clean.
func checkDir(s string) error {
	if err := checkText(s); err != nil {
		return err
	}
	switch {
	case s == "":
		return Errorf(CodeInvalidArgument, "is empty: want an absolute path")
	case !path.IsAbs(s):
		return Errorf(CodeInvalidArgument, "%s is not an absolute path", describe(s))
	case path.Clean(s) != s:
		return Errorf(CodeInvalidArgument, "%s is not a clean path: write %s", describe(s), describe(path.Clean(s)))
	case s == "/":
		return Errorf(CodeInvalidArgument, "is the root directory")
	}
	return nil
}

// describe quotes an argument for a message: short, and never the JSON
// argument, because it may hold secrets.
func describe(s string) string {
	const most = 128
	if strings.ContainsRune(s, '{') {
		return "(JSON, not shown)"
	}
	if len(s) > most {
		return strconv.Quote(strings.ToValidUTF8(s[:most], "")) + "…"
	}
	return strconv.Quote(s)
}

func looksLikeJSON(s string) bool { return strings.HasPrefix(strings.TrimSpace(s), "{") }
