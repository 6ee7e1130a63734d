package flex_test

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/flex2csi/flex2csi/pkg/flex"
)

// encodings are the ways in which a secret is known to turn up in messages.
func encodings() map[string]func(string) string {
	asJSON := func(s string) string {
		b, _ := json.Marshal(s)
		return string(b[1 : len(b)-1])
	}
	inside := func(s string) string { return s[1 : len(s)-1] } // without the quotes around it
	quoted := func(s string) string { return inside(strconv.Quote(s)) }
	return map[string]func(string) string{
		"plain":        func(s string) string { return s },
		"base64":       func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) },
		"base64 raw":   func(s string) string { return base64.RawStdEncoding.EncodeToString([]byte(s)) },
		"base64 URL":   func(s string) string { return base64.URLEncoding.EncodeToString([]byte(s)) },
		"basic":        func(s string) string { return base64.StdEncoding.EncodeToString([]byte("user:" + s + "\n")) },
		"query":        url.QueryEscape,
		"path":         url.PathEscape,
		"query lower":  func(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "%2F", "%2f") },
		"base64 query": func(s string) string { return url.QueryEscape(base64.StdEncoding.EncodeToString([]byte(s))) },
		"JSON":         asJSON,
		"JSON twice":   func(s string) string { return asJSON(asJSON(s)) },
		"quoted":       quoted,
		"quoted ASCII": func(s string) string { return inside(strconv.QuoteToASCII(s)) },
		"quoted JSON":  func(s string) string { return quoted(asJSON(s)) },
		"HTML":         html.EscapeString,
		"hex":          func(s string) string { return hex.EncodeToString([]byte(s)) },
		"upper hex":    func(s string) string { return strings.ToUpper(hex.EncodeToString([]byte(s))) },
		"percent bytes": func(s string) string {
			return fmt.Sprintf("%%%s", strings.Join(strings.Fields(fmt.Sprintf("% x", s)), "%"))
		},
	}
}

func redactorFor(values ...string) *flex.Redactor {
	secrets := map[string]flex.Secret{}
	for i, v := range values {
		secrets[strconv.Itoa(i)] = flex.NewSecret([]byte(v))
	}
	return flex.NewRedactor(flex.Options{Secrets: secrets})
}

func TestRedactByValueInAnyEncoding(t *testing.T) {
	values := []string{
		"hunter2!", "p w/ö+%&=?#", `quo"te\back`, "tab\tnl\nx", "\\\\\\\\", "%2525", "<script>&'",
		"\xff\xfe\x00\x01", "日本語😀", "redacted", "abcd", "+++ +", "AQBzZm9vYmFy+/==", "{\"a\":\"b\"}",
	}
	for _, value := range values {
		r := redactorFor(value)
		for name, encode := range encodings() {
			encoded := encode(value)
			message := "mount: cannot log in with " + encoded + " at host:/x"
			got := r.Redact(message)
			if strings.Contains(got, encoded) || strings.Contains(got, value) {
				t.Errorf("%s of %q: %q still has %q", name, value, got, encoded)
			}
			if !strings.HasPrefix(got, "mount: cannot log in with ") || !strings.HasSuffix(got, " at host:/x") {
				t.Errorf("%s of %q: %q lost what is not secret", name, value, got)
			}
			if again := r.Redact(got); again != got {
				t.Errorf("%s of %q: redacting again changes %q to %q", name, value, got, again)
			}
		}
	}
}

func TestRedactByValue(t *testing.T) {
	tests := []struct{ name, secret, in, want string }{
		{"nothing", "hunter2", "all is well", "all is well"},
		{"twice", "hunter2", "hunter2 and hunter2", "[redacted] and [redacted]"},
		{"side by side", "hunter2", "hunter2hunter2", "[redacted]"},
		{"overlapping itself", "abab", "ababab!", "[redacted]!"},
		{"without the newline of its file", "hunter2\n", "got 'hunter2'", "got '[redacted]'"},
		{"one line of several", "[client]\nkey AQBzZm9v", "bad line: key AQBzZm9v", "bad line: [redacted]"},
		{"short, by itself", "abc", "abc is not abcd nor xabc, but (abc)", "[redacted] is not abcd nor xabc, but ([redacted])"},
		{"short, base64", "abc", "got YWJj", "got [redacted]"},
		{"empty", "", "all is well", "all is well"},
		{"white space", " \n", "all is well", "all is well"},
		{"the mark itself", "redacted", "it is redacted", "it is ***"},
		{"a letter less", "hunter2", "hunter x", "hunter x"},
		{"cut", "hunter2", "got hunte", "got [redacted]"},
		{"cut within an escape", "hunter\"2", `got hunter\u00`, "got [redacted]"},
		{"cut within a character", "hunterü", "got hunter\xc3", "got [redacted]"},
		{"cut base64", "hunter2", "got aHVudG", "got [redacted]"},
		{"cut too short to tell", "hunter2", "got hun", "got hun"},
		{"base64 after a name", "hunter2", "auth=aHVudGVyMg==", "auth=[redacted]"},
		{"escaped by halves", "a b/c d", "a%20b/c+d", "[redacted]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := redactorFor(tt.secret).Redact(tt.in); got != tt.want {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}

func TestRedactOverlappingSecrets(t *testing.T) {
	r := redactorFor("abcd1234", "1234efgh", "hunter2", "hunter2-long")
	for in, want := range map[string]string{
		"x abcd1234efgh y": "x [redacted] y",
		"hunter2-long":     "[redacted]",
		"hunter2 -long":    "[redacted] -long",
	} {
		if got := r.Redact(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestRedactByKey(t *testing.T) {
	tests := []struct{ in, want string }{
		{"-o username=me,password=hunter2,vers=3", "-o username=me,password=[redacted],vers=3"},
		{"passwd=a pass=b secret=c token=d key=e pwd=f", "passwd=[redacted] pass=[redacted] secret=[redacted] token=[redacted] key=[redacted] pwd=[redacted]"},
		{"PASSWORD=Hunter2;", "PASSWORD=[redacted];"},
		{"account_key = AbC== end", "account_key = [redacted] end"},
		{`password="two words" rest`, `password="[redacted]" rest`},
		{`{"user":"me","password":"hun\"ter2","a":"b"}`, `{"user":"me","password":"[redacted]","a":"b"}`},
		{`"{\"password\": \"hunter2\", \"a\":\"b\"}"`, `"{\"password\": \"[redacted]\", \"a\":\"b\"}"`},
		{`{"token":12345}`, `{"token":[redacted]}`},
		{`{"kubernetes.io/secret/user":"bWU="}`, `{"kubernetes.io/secret/user":"[redacted]"}`},
		{"http://me:hunter2@host/share failed", "http://me:[redacted]@host/share failed"},
		{"https://host:443/path?token=abc&x=y", "https://host:443/path?token=[redacted]&x=y"},
		{"(password=hunter2)", "(password=[redacted])"},
		// Prose, and what only looks alike.
		{`the option "password" is missing: set it`, `the option "password" is missing: set it`},
		{"bad password: permission denied", "bad password: permission denied"},
		{"secretfile=/etc/ceph/secret", "secretfile=/etc/ceph/secret"},
		{"password=", "password="},
		{"password=[redacted]", "password=[redacted]"},
		{"nfs server:/export/a", "nfs server:/export/a"},
	}
	for _, tt := range tests {
		for name, r := range map[string]*flex.Redactor{"nil": nil, "empty": flex.NewRedactor(flex.Options{})} {
			if got := r.Redact(tt.in); got != tt.want {
				t.Errorf("%s Redactor:\ngot  %s\nwant %s", name, got, tt.want)
			}
		}
	}
}

func TestRedactKnowsUserOptions(t *testing.T) {
	r := flex.NewRedactor(flex.Options{User: map[string]string{
		"share": "//host/data", "adminPassword": "hunter2", "mountOptions": "vers=3,password=swordfish",
	}})
	in := "//host/data: hunter2 and swordfish refused"
	if got, want := r.Redact(in), "//host/data: [redacted] and [redacted] refused"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A message of any size takes bounded time, also with secrets made to be slow.
func TestRedactEnds(t *testing.T) {
	const huge = 1 << 20
	long := strings.Repeat("0123456789abcdef0123456789abcdef0123456789abcdef\n", 1900) // as large as an argument can be
	for _, unit := range []string{"a", `\`, "%25", "é", long} {
		secret := strings.Repeat(unit, max(1, 90_000/len(unit)))
		d := doing(flex.CommandMount, func(context.Context, *flex.Call) error {
			return errors.New(strings.Repeat(unit, huge/len(unit)))
		})
		o := flex.Options{Secrets: map[string]flex.Secret{"a": flex.NewSecret([]byte(secret)), "b": flex.NewSecret([]byte(secret[:1000] + "x"))}}
		argument, err := o.MarshalArgument()
		if err != nil {
			t.Fatal(err)
		}
		// Quadratic work on a message and a secret of this size would not end
		// before the test's own deadline.
		status := flex.Run(t.Context(), d, []string{"mount", podDir, argument})
		if status.Status != flex.StatusFailure || status.Message == "" {
			t.Errorf("%.10q: %+v", unit, status)
		}
	}
}
