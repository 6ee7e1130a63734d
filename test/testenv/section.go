package testenv

import (
	"os"
	"strings"
	"testing"
)

// Section compares what stands in a document between two lines with what the code says,
// and with update (make docs) writes it.
func Section(t testing.TB, path, begin, end, want string, update bool) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	got, after, ok2 := strings.Cut(rest, end)
	switch {
	case !ok || !ok2:
		t.Fatalf("%s has no place for the table", path)
	case got == want:
	case !update:
		t.Errorf("%s is not what the code says: run make docs", path)
	default:
		if err := os.WriteFile(path, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
