package nodemounts_test

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/internal/nodemounts"
	"github.com/flex2csi/flex2csi/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// TestHealthySilent: what did not answer for two seconds was dead, and so mounts
// of an NFS server that failed over were unmounted under their pods.
func TestHealthySilent(t *testing.T) {
	testenv.Need(t, "fuse")
	for name, silent := range map[string]bool{"silent": true, "dead": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // waits for an answer
			dir := t.TempDir()
			fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			if err := unix.Mount("server", dir, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fd)); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
					t.Error(err)
				}
			})
			if silent {
				t.Cleanup(func() { unix.Close(fd) })
			} else {
				unix.Close(fd)
			}
			m := nodemounts.Mounts{KubeletDir: dir}
			for range 2 { // the second joins the first
				if err := m.Healthy(dir); err == nil || errors.Is(err, os.ErrDeadlineExceeded) != silent {
					t.Errorf("Healthy: %v", err)
				}
			}
		})
	}
}
