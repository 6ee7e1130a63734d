package hostfile_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/flex2csi/flex2csi/internal/hostfile"
)

// TestMakeDir: with all that is above it, for its owner alone; what is there is
// left as it is.
func TestMakeDir(t *testing.T) {
	top := t.TempDir()
	if err := os.Chmod(top, 0o755); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(top, "a", "b", "c")
	for range 2 {
		if err := hostfile.MakeDir(dir); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]os.FileMode{top: 0o755, filepath.Dir(dir): 0o700, dir: 0o700} {
		if st, err := os.Stat(path); err != nil || !st.IsDir() || st.Mode().Perm() != want {
			t.Errorf("%s: %v, %v, want mode %v", path, st, err, want)
		}
	}
	t.Chdir(top)
	if err := hostfile.MakeDir("./x/y"); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile("file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"file", "file/x"} {
		if err := hostfile.MakeDir(path); err == nil {
			t.Errorf("made %s where there is a file", path)
		}
	}
}

// TestWriteFile: nothing else is left in the directory.
func TestWriteFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	for _, text := range []string{"old", "new"} {
		if err := hostfile.WriteFile(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if data, err := os.ReadFile(path); err != nil || string(data) != text {
			t.Errorf("%q, %v", data, err)
		}
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
}
