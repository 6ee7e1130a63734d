package hostfile_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flex2csi/flex2csi/internal/hostfile"
	"github.com/flex2csi/flex2csi/test/testenv"
)

func refused(err error, want string) bool {
	return want == "" && err == nil || want != "" && err != nil && strings.Contains(err.Error(), want)
}

func TestCheck(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		mode   fs.FileMode
		others hostfile.Others
		want   string
	}{
		{0o600, hostfile.MayNothing, ""},
		{0o400, hostfile.MayNothing, ""},
		{0o640, hostfile.MayNothing, "has mode 0640, so that others can read or change it (chmod 0600)"},
		{0o604, hostfile.MayNothing, "has mode 0604"},
		{0o644, hostfile.MayRead, ""},
		{0o664, hostfile.MayRead, "has mode 0664, so that others can change it (chmod go-w)"},
		{0o646, hostfile.MayRead, "has mode 0646"},
		{0o666, hostfile.MayNothing, "has mode 0666"},
		{0o666, hostfile.MayChange, ""},
	} {
		if err := os.Chmod(path, tt.mode); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := hostfile.CheckTrusted(info, tt.others); !refused(err, tt.want) {
			t.Errorf("%o: %v, want %q", tt.mode, err, tt.want)
		}
		if _, err := hostfile.ReadTrusted(path, tt.others, 10); !refused(err, tt.want) {
			t.Errorf("reading %o: %v, want %q", tt.mode, err, tt.want)
		}
	}
}

func TestOwner(t *testing.T) {
	testenv.Need(t, "root")
	dir := filepath.Join(t.TempDir(), "d")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := hostfile.CheckTrustedDir(dir, false); err != nil {
		t.Error(err)
	}
	link := dir + "-link"
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if err := os.Lchown(link, 12345, -1); err != nil {
		t.Fatal(err)
	}
	if err := hostfile.CheckTrustedDir(link, true); !refused(err, "belongs to the user with ID 12345 (chown root)") {
		t.Error(err)
	}
	if err := os.Chown(dir, 12345, -1); err != nil {
		t.Fatal(err)
	}
	if err := hostfile.CheckTrustedDir(dir, true); !refused(err, "belongs to the user with ID 12345 (chown root)") {
		t.Error(err)
	}
}

func TestDirectory(t *testing.T) {
	dir := t.TempDir()
	link, file := filepath.Join(t.TempDir(), "link"), filepath.Join(dir, "file")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := hostfile.CheckTrustedDir(file, false); !refused(err, "is no directory") {
		t.Error(err)
	}
	if err := hostfile.CheckTrustedDir(filepath.Join(dir, "none"), false); err == nil {
		t.Error("what is not there is trusted")
	}
	for _, tt := range []struct {
		mode   fs.FileMode
		sticky bool
		want   string
	}{
		{0o755, false, ""},
		{0o775, false, "has mode 0775"},
		{0o777 | fs.ModeSticky, true, ""},
		{0o777 | fs.ModeSticky, false, "has mode 0777"},
		{0o777, true, "has mode 0777, so that others can change it (chmod go-w)"},
	} {
		if err := os.Chmod(dir, tt.mode); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{dir, link} {
			if err := hostfile.CheckTrustedDir(path, tt.sticky); !refused(err, tt.want) {
				t.Errorf("%s, %v, sticky %t: %v, want %q", path, tt.mode, tt.sticky, err, tt.want)
			}
		}
	}
}

func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := os.WriteFile(path, []byte("hunter2"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		path  string
		limit int64
		want  string
	}{
		{path, 7, ""},
		{path, 6, "larger than"},
		{dir, 7, "not a regular file"},
		{path + "x", 7, "no such file"},
	} {
		data, err := hostfile.ReadTrusted(tt.path, hostfile.MayNothing, tt.limit)
		if !refused(err, tt.want) || err != nil && (strings.Contains(err.Error(), "hunter") || strings.Contains(err.Error(), dir)) {
			t.Errorf("%s: %v, want %q, and neither content nor path", tt.path, err, tt.want)
		}
		if err == nil && string(data) != "hunter2" {
			t.Errorf("%s: %q", tt.path, data)
		}
	}
}
