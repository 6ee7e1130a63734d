package mapping

import (
	"fmt"
	"regexp"
	"strings"

	"cel.dev/cel-go/cel"

	"github.com/flex2csi/flex2csi/internal/strict"
)

// syntaxError says what the parser says, without the list of all tokens that it expects.
func syntaxError(text string) string {
	text = strings.TrimPrefix(text, "Syntax error: ")
	for _, begins := range []string{"mismatched input ", "extraneous input ", "no viable alternative at input ", "token recognition error at: "} {
		if input, ok := strings.CutPrefix(text, begins); ok {
			input, _, _ = strings.Cut(input, " expecting ")
			text = "unexpected " + input
		}
	}
	if text == "unexpected '<EOF>'" {
		return "the expression ends too early"
	}
	return strings.TrimSuffix(text, " at '<EOF>'")
}

// advice says how to write what was probably meant, or nothing.
func advice(source, problem string, want *cel.Type) string {
	source = strings.TrimSpace(source)
	has := func(texts ...string) bool {
		for _, text := range texts {
			if strings.Contains(problem, text) {
				return true
			}
		}
		return false
	}
	dashed := regexp.MustCompile(`options\.(\w+(?:-\w+)+)`).FindStringSubmatch(source)
	switch {
	case regexp.MustCompile(`\{\{|\$[{(]`).MatchString(source):
		return "expressions are CEL, not templates: write options.NAME for an option"
	case plain(source):
		return quoted(source, want)
	case dashed != nil:
		return fmt.Sprintf("write options[%q]: a name with - in it needs brackets", dashed[1])
	case has("'and'", "'or'", "'not'"):
		return "write && for and, || for or, ! for not"
	case has("unexpected '="):
		return "write == to compare"
	case has("unexpected '|", "unexpected '&"):
		return "write || for or, && for and"
	case has("reserved identifier: if"):
		return "write CONDITION ? VALUE : OTHER"
	case regexp.MustCompile(`\[\w*:\w*\]`).MatchString(source):
		return "write .substring(FROM, TO) for a part of a text"
	case has("unexpected '\"", "unexpected '''"):
		return "close the quote, or join texts with +"
	case has("unexpected '?'"):
		return `write CONDITION ? VALUE : OTHER, or options.?name.orValue("other")`
	case has("unexpected ';'"):
		return "want one expression"
	case has("unexpected ':'"):
		return `join texts with +, such as options.a + ":" + options.b`
	case has("undefined field"):
		return "pod has name, namespace, uid and serviceAccount"
	case has("'_?_:_'"):
		return `a condition is a comparison, such as options.x == "true"`
	case has("expected type 'optional_type"):
		return optional(want)
	case has("expected type 'bool' but found 'string'"):
		return `write options.?name.orValue("other") for a default; && and || join comparisons`
	case has("no matching overload") && has("applied to 'string.("):
		return "docs/mapping.md lists the functions"
	case has("no matching overload"):
		return "string(…), int(…) and quotes make values of one type"
	case has("undeclared reference to 'secret"):
		return "expressions see no secrets: name them in the section secrets"
	case regexp.MustCompile(`\w\(`).MatchString(source) && has("undeclared reference"):
		return "docs/mapping.md lists the variables and functions"
	case has("undeclared reference") && strings.HasPrefix(source, "{"):
		return `put keys and texts into double quotes, such as {"key": options.key}`
	case has("undeclared reference") && !has("did you mean"):
		return "put a text into double quotes; an option is options.NAME"
	}
	return ""
}

// plain reports whether an expression looks like a text without its quotes.
func plain(source string) bool {
	if !regexp.MustCompile(`^[A-Za-z0-9/][\w./,:=@-]*$`).MatchString(source) {
		return false
	}
	// These are not texts but names with typing errors, and numbers.
	for _, name := range []string{"options", "pvName", "fsType", "readOnly", "accessModes", "pod"} {
		if strings.EqualFold(source, name) {
			return false
		}
	}
	return !regexp.MustCompile(`options\.|^[A-Za-z_]\w*\.\w+$|^[0-9.]+$`).MatchString(source)
}

// comparison says how to make a bool.
const comparison = `compare it, such as fsType == "ext4" or options.?kind.orValue("") == "share"`

// quoted is a text as an expression, in the quotes of YAML.
func quoted(text string, want *cel.Type) string {
	text = strict.Clip(text)
	switch want.Kind() {
	case cel.ListKind:
		return fmt.Sprintf(`for this text write '["%s"]'`, strings.ReplaceAll(text, ",", `", "`))
	case cel.MapKind:
		return `write '{"key": options.key}'`
	case cel.BoolKind:
		return comparison
	}
	return fmt.Sprintf(`for this text write '"%s"'`, text)
}

// optional says how to use an optional value, such as options.?x.
func optional(want *cel.Type) string {
	if want.Kind() == cel.MapKind {
		return `write {?"key": options.?name} to leave the key out without the option, or options.?name.orValue("")`
	}
	return `end it with .orValue("")`
}

// conversion says how to make the type that is wanted.
func conversion(got, want *cel.Type) string {
	switch {
	case want.Kind() == cel.BoolKind:
		return comparison
	case strings.Contains(got.String(), "optional_type"):
		return optional(want)
	case want.Kind() == cel.StringKind && got.Kind() != cel.ListKind && got.Kind() != cel.MapKind:
		return "string(…) makes a text of it"
	case want.Kind() == cel.ListKind && got.Kind() == cel.StringKind:
		return `put it into brackets, or split it: splitOptions(options.flags)`
	case want.Kind() == cel.MapKind && got.Kind() == cel.StringKind:
		return `write {"key": options.key}`
	case want.Kind() == cel.StringKind && got.Kind() == cel.MapKind:
		return "take one of them: options.NAME"
	case want.Kind() == cel.StringKind && got.Kind() == cel.ListKind:
		return `join its texts: .join(",")`
	}
	return ""
}
