package flex_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"strings"
	"testing"

	"github.com/flex2csi/flex2csi/pkg/flex"
)

// holder hides a secret where fmt cannot call its methods.
type holder struct {
	secret  flex.Secret
	pointer *flex.Secret
	list    []flex.Secret
	byName  map[string]flex.Secret
	options flex.Options
	any     any
}

func TestSecretCannotBePrinted(t *testing.T) {
	const value = "hunter2-Zq"
	secret := flex.NewSecret([]byte(value))
	options := flex.Options{Secrets: map[string]flex.Secret{"password": secret}}
	hidden := holder{secret, &secret, []flex.Secret{secret}, options.Secrets, options, secret}
	call := flex.Call{Options: options}
	things := []any{secret, &secret, hidden, &hidden, options, call, &call, []any{secret}, map[string]any{"a": hidden}, struct{ S flex.Secret }{secret}}

	var out strings.Builder
	for _, thing := range things {
		for _, verb := range "vTtbcdoOqxXUeEfFgGspw!" {
			for _, flags := range []string{"", "+", "#", "-", " ", "0", "10", ".3", "+#"} {
				fmt.Fprintf(&out, "%"+flags+string(verb)+"\n", thing)
			}
		}
		fmt.Fprintln(&out, thing)
		b, _ := json.Marshal(thing)
		out.Write(b)
		b, _ = xml.Marshal(thing)
		out.Write(b)
		slog.New(slog.NewTextHandler(&out, nil)).Info("x", slog.Any("thing", thing), slog.Group("g", slog.Any("thing", thing)))
		slog.New(slog.NewJSONHandler(&out, nil)).Info("x", slog.Any("thing", thing), slog.Group("g", slog.Any("thing", thing)))
		log.New(&out, "", 0).Print(thing)
		err := fmt.Errorf("cannot use %v: %w", thing, errors.New(fmt.Sprint(thing)))
		fmt.Fprintf(&out, "%v %+v %#v", err, err, err)
	}
	for name, encode := range encodings() {
		if strings.Contains(out.String(), encode(value)) {
			t.Errorf("the secret was printed (%s)", name)
		}
	}
	// Lists of numbers, as %d and %v of bytes give.
	if strings.Contains(out.String(), "104 117 110") || strings.Contains(out.String(), "104,117,110") {
		t.Error("the secret was printed as numbers")
	}
}

func TestSecretPrintsAsRedacted(t *testing.T) {
	secret := flex.NewSecret([]byte("hunter2"))
	for _, verb := range "vsqxXd" {
		for _, flags := range []string{"", "+", "#"} {
			format := "%" + flags + string(verb)
			if got := fmt.Sprintf(format, secret); got != "[redacted]" {
				t.Errorf("%s gives %s", format, got)
			}
		}
	}
	if got, err := json.Marshal(map[string]any{"a": secret}); err != nil || string(got) != `{"a":"[redacted]"}` {
		t.Errorf("JSON: %s, %v", got, err)
	}
	if got, err := secret.MarshalText(); err != nil || string(got) != "[redacted]" {
		t.Errorf("text: %s, %v", got, err)
	}
	if secret.String() != "[redacted]" || secret.GoString() != "[redacted]" {
		t.Error("String or GoString")
	}
}

func TestSecretReveal(t *testing.T) {
	value := []byte("hunter2")
	secret := flex.NewSecret(value)
	value[0] = 'X'
	secret.Reveal()[1] = 'X'
	if got := secret.Reveal(); !bytes.Equal(got, []byte("hunter2")) {
		t.Errorf("got %q: the value is shared with others", got)
	}
	var zero flex.Secret
	if len(zero.Reveal()) != 0 || !zero.Equal(flex.NewSecret(nil)) || zero.Equal(secret) || fmt.Sprint(zero) != "[redacted]" {
		t.Error("the zero Secret is not an empty one")
	}
	decoded := base64.StdEncoding.EncodeToString(secret.Reveal())
	if decoded != "aHVudGVyMg==" {
		t.Errorf("got %s", decoded)
	}
}
