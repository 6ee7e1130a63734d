package statedir_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/flex2csi/flex2csi/internal/statedir"
	"github.com/flex2csi/flex2csi/internal/volstate"
)

// TestCordon: the cordon stays when the next daemon opens the store in the same
// directory, and begins once.
func TestCordon(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	store, err := volstate.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	check := func(when string, want *statedir.Cordon) {
		t.Helper()
		got, err := statedir.GetCordon(dir)
		if err != nil || (got == nil) != (want == nil) || (got != nil && !got.Since.Equal(want.Since)) {
			t.Errorf("%s: %v, %v; want %v", when, got, err, want)
		}
	}
	check("at first", nil)
	begun, err := statedir.BeginCordon(dir)
	if err != nil {
		t.Fatal(err)
	}
	if since := time.Since(begun.Since); since < 0 || since > time.Minute {
		t.Errorf("cordoned since %v", begun.Since)
	}
	if _, broken, err := store.Load(); err != nil || len(broken) > 0 {
		t.Error(broken, err)
	}
	check("after the store loaded the records", begun)
	if again, err := statedir.BeginCordon(dir); err != nil || !again.Since.Equal(begun.Since) {
		t.Errorf("begun again: %v, %v", again, err)
	}
	for range 2 {
		if err := statedir.EndCordon(dir); err != nil {
			t.Error(err)
		}
		check("ended", nil)
	}
}

// TestBroken: a file that cannot be read is a cordon.
func TestBroken(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, statedir.CordonFileName), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := statedir.GetCordon(dir); err != nil || got == nil || got.Since.IsZero() {
		t.Errorf("got %v, %v", got, err)
	}
}
