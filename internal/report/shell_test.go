package report_test

import (
	"os/exec"
	"testing"

	"github.com/flex2csi/flex2csi/internal/report"
)

// TestQuote has a shell say what it has got.
func TestQuote(t *testing.T) {
	for _, text := range []string{"", "pv-1", "a/b.c:d@e", "x; touch /tmp/p #", "$(id)", "`id`", "it's", "a b", "a\nb", `\`, "*", "~", "~root", "a~b", "ä", "!x", "'", "''"} {
		out, err := exec.Command("/bin/sh", "-c", "printf %s "+report.Quote(text)).CombinedOutput()
		if err != nil || string(out) != text {
			t.Errorf("%q is quoted as %s, and arrives as %q %v", text, report.Quote(text), out, err)
		}
	}
	if got := report.Quote("shop/orders"); got != "shop/orders" {
		t.Error(got)
	}
}
