package driverconfig_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flex2csi/flex2csi/internal/driverconfig"
	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/test/testenv"
)

func TestEncode(t *testing.T) {
	data, err := fullConfiguration().Encode()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(full, string(data)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestEncodeRefusesInvalid(t *testing.T) {
	config := driverconfig.Default(disk(), driverconfig.BackendLocal)
	config.DirectoryRoots = []string{"srv"}
	if _, err := config.Encode(); err == nil || !strings.Contains(err.Error(), "directoryRoots[0]") {
		t.Errorf("error %v does not name directoryRoots[0]", err)
	}
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), driverconfig.FileName)
	if err := os.WriteFile(path, []byte(full), driverconfig.FileMode); err != nil {
		t.Fatal(err)
	}
	got, err := driverconfig.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(fullConfiguration(), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := got.Timeout(flex.CommandMount); got != 110*time.Second {
		t.Errorf("timeout of mount is %v, want 1m50s", got)
	}
	if got := got.Timeout(flex.CommandUnmount); got != 0 {
		t.Errorf("timeout of unmount is %v, want 0 (the default)", got)
	}
}

// TestLoadFaults: whatever lies at the path, Load says so at once. A FIFO is the
// worst: opening it would wait for ever, under the kubelet's lock.
func TestLoadFaults(t *testing.T) {
	giveAway := func(path string) error { return os.Chown(path, 1000, 1000) }
	tests := []struct {
		name string
		make func(path string) error
		want string
	}{
		{"missing", func(string) error { return nil }, "run flexdriver install again"},
		{"directory", func(p string) error { return os.Mkdir(p, 0o755) }, "not a regular file"},
		{"FIFO", func(p string) error { return syscall.Mkfifo(p, 0o644) }, "not a regular file"},
		{"too large", func(p string) error {
			return os.WriteFile(p, []byte(full+strings.Repeat(" ", driverconfig.MaxSize)), 0o644)
		}, "larger than 64 KiB"},
		{"dangling symlink", func(p string) error { return os.Symlink("nowhere", p) }, "no configuration at"},
		// The daemon refused such a file, and flexdriver took it (security.md, F8).
		{"of mode 0666", func(p string) error { return errors.Join(os.WriteFile(p, []byte(full), 0o644), os.Chmod(p, 0o666)) }, "it has mode 0666, so that others can change it (chmod go-w)"},
		{"of another user", func(p string) error { return errors.Join(os.WriteFile(p, []byte(full), 0o644), giveAway(p)) }, "it belongs to the user with ID 1000 (chown root)"},
		{"in an open directory", func(p string) error {
			return errors.Join(os.WriteFile(p, []byte(full), 0o644), os.Chmod(filepath.Dir(p), 0o777))
		}, "it has mode 0777, so that others can change it (chmod go-w)"},
		{"below an open directory", func(p string) error {
			return errors.Join(os.WriteFile(p, []byte(full), 0o644), os.Chmod(filepath.Dir(filepath.Dir(p)), 0o775))
		}, "it has mode 0775"},
		{"in another user's directory", func(p string) error {
			return errors.Join(os.WriteFile(p, []byte(full), 0o644), giveAway(filepath.Dir(p)))
		}, "it belongs to the user with ID 1000 (chown root)"},
		{"broken", func(p string) error { return os.WriteFile(p, []byte(full[:100]), 0o644) }, "unexpected end of JSON input"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if strings.Contains(tt.name, "another user") {
				testenv.Need(t, "root")
			}
			path := filepath.Join(t.TempDir(), driverconfig.FileName)
			if err := tt.make(path); err != nil {
				t.Fatal(err)
			}
			_, err := driverconfig.Load(path)
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Count(err.Error(), path) != 1 || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %v does not say %q and the path once", err, tt.want)
			}
			if missing := tt.name == "missing" || tt.name == "dangling symlink"; errors.Is(err, fs.ErrNotExist) != missing {
				t.Errorf("errors.Is(%v, fs.ErrNotExist) is %t", err, !missing)
			}
		})
	}
}

// TestSafeCapabilities: a driver without configuration and one with the default
// configuration answer init alike.
func TestSafeCapabilities(t *testing.T) {
	want := flex.Capabilities{SELinuxRelabel: true, SupportsMetrics: true, RequiresFSResize: true}
	if got := driverconfig.SafeCapabilities(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := driverconfig.Default(disk(), driverconfig.BackendLocal).Capabilities; got != want {
		t.Errorf("the default configuration has %+v, want %+v", got, want)
	}
}

func BenchmarkLoad(b *testing.B) {
	path := filepath.Join(b.TempDir(), driverconfig.FileName)
	if err := os.WriteFile(path, []byte(full), driverconfig.FileMode); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := driverconfig.Load(path); err != nil {
			b.Fatal(err)
		}
	}
}
