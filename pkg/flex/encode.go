package flex

import (
	"strconv"
	"unicode/utf8"
)

// The answer is written by hand rather than by encoding/json: the kubelet runs
// init under a lock, and setting up reflection for one small object costs a
// tenth of what the whole process costs otherwise.

// appendJSON appends the object and a newline. Empty fields are left out, as
// their tags say.
func (s DriverStatus) appendJSON(b []byte) []byte {
	b = append(b, `{"status":`...)
	b = appendString(b, string(s.Status))
	for _, field := range [...]pair{{"message", s.Message}, {"device", s.Device}, {"volumeName", s.VolumeName}} {
		if field.value != "" {
			b = append(b, `,"`+field.key+`":`...)
			b = appendString(b, field.value)
		}
	}
	if s.Attached != nil {
		b = append(b, `,"attached":`...)
		b = strconv.AppendBool(b, *s.Attached)
	}
	if s.Capabilities != nil {
		b = append(b, `,"capabilities":`...)
		b = s.Capabilities.appendJSON(b)
	}
	return append(b, "}\n"...)
}

func (c Capabilities) appendJSON(b []byte) []byte {
	separator := byte('{')
	for _, field := range [...]struct {
		key   string
		value bool
	}{
		{"attach", c.Attach},
		{"selinuxRelabel", c.SELinuxRelabel},
		{"fsGroup", c.FSGroup},
		{"supportsMetrics", c.SupportsMetrics},
		{"requiresFSResize", c.RequiresFSResize},
	} {
		b = append(b, separator)
		b = append(b, `"`+field.key+`":`...)
		b = strconv.AppendBool(b, field.value)
		separator = ','
	}
	return append(b, '}')
}

// appendString appends a JSON string. What is no UTF-8 becomes U+FFFD.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r < ' ':
			const digits = "0123456789abcdef"
			b = append(b, '\\', 'u', '0', '0', digits[r>>4], digits[r&0xf])
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return append(b, '"')
}
