package flex

import "strings"

// Redactor takes secrets out of messages: by value, in the encodings in which
// values turn up in errors, and by key, for secrets that it does not know
// by value.
//
// By value it finds a secret in plain, in base64 (both alphabets, padded or
// not, also as part of a longer value, as in "Basic" credentials) and in hex;
// each of them also with some or all bytes escaped as in URLs, JSON, Go's %q,
// C strings or HTML. Values of less than four bytes are found only as whole
// words, since they would be found everywhere. A text may have been cut within a secret: at
// its end, four or more characters that begin a secret are removed too. By key it
// finds what follows "password=", "token=" and the like, "key":"…", and the password in a URL.
//
// The nil Redactor knows no values and works by key.
type Redactor struct {
	needles []needle
	mark    string
}

// NewRedactor returns a Redactor for the secrets of one call: the values under
// kubernetes.io/secret/, and those of the volume's own options that are secret by
// their key, such as "password", or by their value, such as
// "username=me,password=…".
func NewRedactor(o Options) *Redactor {
	r := &Redactor{mark: redacted}
	for _, secret := range o.Secrets {
		r.add(string(secret.Reveal()))
	}
	for key, value := range o.User {
		if isSecretName(key) {
			r.add(value)
		}
		for _, sp := range keySpans(value) { // as in mountOptions
			r.add(value[sp.start:sp.end])
		}
	}
	if len(r.valueSpans(r.mark)) > 0 {
		r.mark = "***" // the mark itself would give a part of a secret away
	}
	return r
}

// Redact returns s with every secret in it replaced by "[redacted]".
func (r *Redactor) Redact(s string) string {
	if s == "" {
		return s
	}
	if r == nil {
		r = &Redactor{mark: redacted}
	}
	s = replace(s, append(r.valueSpans(s), keySpans(s)...), r.mark)
	// What is left and a mark may by chance make up a secret again.
	for range 3 {
		spans := r.valueSpans(s)
		if len(spans) == 0 {
			return s
		}
		s = replace(s, spans, r.mark)
	}
	return r.mark
}

// maxRaw bounds the text that is searched: a library can give us megabytes, of
// which the answer shows the first kilobyte.
const maxRaw = 4 * maxMessage

// status redacts the one part of an answer that is made of free text. The mark
// of a cut is put on last, so that half a secret before it is found.
func (r *Redactor) status(s DriverStatus) DriverStatus {
	if len(s.Message) <= maxRaw {
		s.Message = r.Redact(s.Message)
		return s
	}
	s.Message = r.Redact(s.Message[:maxRaw]) + "…"
	return s
}

// span is a part of a message, from start up to end.
type span struct{ start, end int }

// replace puts mark in place of the spans, once for those that touch.
func replace(s string, spans []span, mark string) string {
	if len(spans) == 0 {
		return s
	}
	hidden := make([]bool, len(s))
	for _, sp := range spans {
		for i := sp.start; i < sp.end; i++ {
			hidden[i] = true
		}
	}
	var b strings.Builder
	for i := range len(s) {
		switch {
		case !hidden[i]:
			b.WriteByte(s[i])
		case i == 0 || !hidden[i-1]:
			b.WriteString(mark)
		}
	}
	return b.String()
}
