package flex

import (
	"bytes"
	"fmt"
	"io"
)

// redacted stands wherever a secret would have stood.
const redacted = "[redacted]"

// Secret is a value that cannot be printed. fmt with any verb, encoding/json,
// encoding by text, log/slog and error texts show "[redacted]"; where such a
// package cannot call methods, as in an unexported field, it finds only the
// address of a function. [Secret.Reveal] is the one way to the value.
//
// The zero value is an empty secret.
type Secret struct {
	// A closure, because reflection can look into everything else.
	reveal func() []byte
}

// NewSecret returns a Secret with a copy of value.
func NewSecret(value []byte) Secret {
	value = bytes.Clone(value)
	return Secret{reveal: func() []byte { return value }}
}

// Reveal returns a copy of the value. Give it to what needs it, through a
// file descriptor or a file of mode 0600, never in the arguments of a command.
func (s Secret) Reveal() []byte {
	if s.reveal == nil {
		return nil
	}
	return bytes.Clone(s.reveal())
}

// Equal reports whether both hold the same value. It is there for tests.
func (s Secret) Equal(other Secret) bool { return bytes.Equal(s.Reveal(), other.Reveal()) }

// String returns "[redacted]".
func (Secret) String() string { return redacted }

// GoString returns "[redacted]".
func (Secret) GoString() string { return redacted }

// Format prints "[redacted]" for every verb and flag.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// MarshalJSON returns "[redacted]" as a JSON string.
func (Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }

// MarshalText returns "[redacted]". log/slog's text handler asks for it.
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }
