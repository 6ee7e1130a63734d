package testenv

import (
	"os"
	"path/filepath"
	"testing"
)

// Sizes in bytes for [Image].
const (
	MiB = 1 << 20
	GiB = 1 << 30
)

// Image returns the path of a new sparse file of the given size, for a loop
// device. It lies alone in a directory that [LeakCheck] watches.
func Image(t testing.TB, size int64) string {
	t.Helper()
	dir := t.TempDir()
	LeakCheck(t, dir)
	name := filepath.Join(dir, "disk.img")
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatalf("testenv.Image: %v", err)
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		t.Fatalf("testenv.Image: %v", err)
	}
	return name
}
