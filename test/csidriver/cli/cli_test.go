package cli

import (
	"strings"
	"testing"
)

func TestWrongFlags(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{nil, "say --dir DIRECTORY"},
		{[]string{"--nonsense"}, "unknown flag"},
		{[]string{"--dir", t.TempDir(), "x"}, `unexpected argument "x"`},
		{[]string{"--dir", t.TempDir(), "--expansion", "sometimes"}, "want online, offline or none"},
		{[]string{"--dir", t.TempDir(), "--name", "a/b"}, "driver name"},
		{[]string{"--dir", t.TempDir(), "--node-id", ".."}, "node id"},
		{[]string{"--dir", t.TempDir(), "--endpoint", "tcp://1.2.3.4"}, "want unix:///path"},
		{[]string{"--dir", t.TempDir(), "--volume", "disk"}, "want NAME=SIZE"},
		{[]string{"--dir", t.TempDir(), "--volume", "disk=much"}, "is no size"},
	} {
		var said strings.Builder
		if status := Main(tt.args, &said); status != 1 || !strings.Contains(said.String(), tt.want) {
			t.Errorf("%q: status %d, said %q; want %q", tt.args, status, said.String(), tt.want)
		}
	}
	var said strings.Builder
	if status := Main([]string{"--help"}, &said); status != 0 || !strings.Contains(said.String(), "not a product") {
		t.Errorf("--help: status %d, said %q", status, said.String())
	}
}
