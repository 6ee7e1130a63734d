package retirement_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/flex2csi/flex2csi/internal/retirement"
	"github.com/flex2csi/flex2csi/internal/volstate"
)

// TestRetirement: the note outlives the store that it lies beside being opened
// by the next daemon, and begins once.
func TestRetirement(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	store, err := volstate.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	check := func(when string, want *retirement.Retirement) {
		t.Helper()
		got, err := retirement.Get(dir)
		if err != nil || (got == nil) != (want == nil) || got != nil && !got.Since.Equal(want.Since) {
			t.Errorf("%s: %v, %v; want %v", when, got, err, want)
		}
	}
	check("at first", nil)
	begun, err := retirement.Begin(dir)
	if err != nil {
		t.Fatal(err)
	}
	if since := time.Since(begun.Since); since < 0 || since > time.Minute {
		t.Errorf("retired since %v", begun.Since)
	}
	if _, broken, err := store.Load(); err != nil || len(broken) > 0 {
		t.Error(broken, err)
	}
	check("after the records were read", begun)
	if again, err := retirement.Begin(dir); err != nil || !again.Since.Equal(begun.Since) {
		t.Errorf("begun again: %v, %v", again, err)
	}
	for range 2 {
		if err := retirement.End(dir); err != nil {
			t.Error(err)
		}
		check("ended", nil)
	}
}

// TestSpoiltNote: it counts.
func TestSpoiltNote(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "retired"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := retirement.Get(dir); err != nil || got == nil || got.Since.IsZero() {
		t.Errorf("got %v, %v", got, err)
	}
}
