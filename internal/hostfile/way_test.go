//go:build linux

package hostfile_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/internal/hostfile"
	"github.com/flex2csi/flex2csi/test/testenv"
)

func TestWay(t *testing.T) {
	testenv.Need(t, "root")
	top := t.TempDir()
	at := func(name string) string { return filepath.Join(top, name) }
	must := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"good/root", "theirs/root", "open/root", "sticky/root", "sticky/theirs", "good/open"} {
		must(os.MkdirAll(at(dir), 0o755))
	}
	must(os.Chown(at("theirs"), 12345, -1), os.Chmod(at("open"), 0o775), os.Chmod(at("sticky"), 0o777|os.ModeSticky), os.Chown(at("sticky/theirs"), 12345, -1),
		os.WriteFile(at("file"), nil, 0o644))
	for link, to := range map[string]string{
		"absolute": at("good"), "relative": "good/../good/root", "up": "good/open/..", "open/link": at("good/root"), "toTheirs": at("theirs/root"),
		"sticky/link": at("good"), "sticky/foreign": at("good"), "circle": "circle", "nowhere": "none",
	} {
		must(os.Symlink(to, at(link)))
	}
	must(os.Lchown(at("sticky/foreign"), 12345, -1))
	for path, want := range map[string]error{
		"good/root": nil, "absolute/root": nil, "relative": nil, "up/root": nil, "sticky/root": nil, "sticky/link/root": nil,
		"theirs": nil, "open": nil, "theirs/root": hostfile.ErrOthers, "open/root": hostfile.ErrOthers, "open/link": hostfile.ErrOthers, "toTheirs": hostfile.ErrOthers,
		"sticky/theirs": hostfile.ErrOthers, "sticky/foreign/root": hostfile.ErrOthers,
		"circle": unix.ELOOP, "nowhere": unix.ENOENT, "none/root": unix.ENOENT, "file": unix.ENOTDIR, "file/x": unix.ENOTDIR,
	} {
		f, err := hostfile.OpenTrustedDir(at(path))
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
		if err != nil {
			continue
		}
		opened, errOpened := f.Stat()
		found, errFound := os.Stat(at(path))
		if must(errOpened, errFound); !os.SameFile(opened, found) {
			t.Errorf("%s: another directory was opened", path)
		}
		f.Close()
	}
}
