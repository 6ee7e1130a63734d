package strict_test

import (
	"testing"

	"github.com/flex2csi/flex2csi/internal/strict"
)

func TestFaultString(t *testing.T) {
	for want, f := range map[string]strict.Fault{
		"empty":              {Message: "empty"},
		"line 3: no YAML":    {Line: 3, Message: "no YAML"},
		"a.b: no":            {Path: "a.b", Message: "no"},
		"a[1].b (line 2): x": {Path: "a[1].b", Line: 2, Message: "x"},
	} {
		if got := f.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
