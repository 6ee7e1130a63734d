package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/internal/daemon"
	"github.com/flex2csi/flex2csi/internal/kubeletdir"
	"github.com/flex2csi/flex2csi/internal/wire"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// Each user of the node could read the volume's Secret in /proc/PID/cmdline for
// as long as a callout took, minutes if a CSI driver was slow.
func TestArgumentsAreHidden(t *testing.T) {
	t.Run("csi", func(t *testing.T) {
		h := newLeakHunt(t, "", "")
		arrived, release := make(chan []string, 1), make(chan struct{})
		h.daemonThatWaits(arrived, release)
		volume := h.argument("", "volumeHandle", "disk-1")
		for _, flags := range [][]string{nil, {"--log-file", h.log, "-vv"}} {
			for _, args := range [][]string{{"mount", h.pod, volume}, {"mountdevice", h.global, "/dev/disk-1", volume}, {"attach", volume, "node-1"}} {
				cmd := h.start(append(flags, args...)...)
				if got := <-arrived; strings.Join(got, "\n") != strings.Join(args, "\n") {
					t.Errorf("the daemon gets %q", got)
				}
				h.looksHidden(cmd, args)
				release <- struct{}{}
				_ = cmd.Wait()
			}
		}
	})
	t.Run("local", func(t *testing.T) {
		h := newLeakHunt(t, "", "")
		args := []string{"mount", h.pod, h.argument("", "medium", "memory", "size", "1Mi")}
		unlock := h.lockAll()
		cmd := h.start(append([]string{"--log-file", h.log, "-vvv"}, args...)...)
		h.waitsForLock(cmd)
		h.looksHidden(cmd, args)
		unlock()
		if err := errors.Join(cmd.Wait(), unix.Unmount(h.pod, 0)); err != nil {
			t.Error(err)
		}
	})
}

// daemonThatWaits has each call wait for release.
func (h *leakHunt) daemonThatWaits(arrived chan<- []string, release <-chan struct{}) {
	h.Helper()
	socket := filepath.Join(h.dir, "s")
	config := csiConfig(socket, filepath.Join(h.dir, "state"))
	if err := os.WriteFile(filepath.Join(filepath.Dir(h.driver), ".flexdriver.json"), []byte(config), 0o644); err != nil {
		h.Fatal(err)
	}
	l, err := daemon.Listen(socket)
	if err != nil {
		h.Fatal(err)
	}
	server := &daemon.Server{Handler: func(_ context.Context, r *wire.Request) flex.DriverStatus {
		arrived <- r.Argv
		<-release
		return flex.DriverStatus{Status: flex.StatusSuccess}
	}}
	go func() { _ = server.Serve(context.Background(), l) }()
	h.Cleanup(func() { l.Close() })
}

// lockAll takes every lock that there is for calls of this kubelet.
func (h *leakHunt) lockAll() (unlock func()) {
	h.Helper()
	file := kubeletdir.LockFile(filepath.Join(h.dir, "kubelet"))
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		h.Fatal(err)
	}
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		h.Fatal(err)
	}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}); err != nil {
		h.Fatal(err)
	}
	return func() { f.Close() }
}

// waitsForLock returns when a callout has the lock's file open.
func (h *leakHunt) waitsForLock(cmd *exec.Cmd) {
	h.Helper()
	file := kubeletdir.LockFile(filepath.Join(h.dir, "kubelet"))
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", cmd.Process.Pid))
		for _, link := range links {
			if to, err := os.Readlink(link); err == nil && to == file {
				return
			}
		}
	}
	h.Fatal("the callout does not wait")
}

func (h *leakHunt) start(args ...string) *exec.Cmd {
	h.Helper()
	cmd := exec.Command(h.driver, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	if err := cmd.Start(); err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd
}

// looksHidden looks at what others see of a callout: neither its secrets nor its
// options, but which it is, and for which directory.
func (h *leakHunt) looksHidden(cmd *exec.Cmd, args []string) {
	h.Helper()
	for _, name := range []string{"cmdline", "environ"} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", cmd.Process.Pid, name))
		if err != nil || len(text) == 0 {
			h.Errorf("%s: %q, %v", name, text, err)
		}
		for _, spelling := range append(h.spellings, "{", `"`) {
			if bytes.Contains(text, []byte(spelling)) {
				h.Errorf("%s of %s has %q in it: %.300q", name, args[0], spelling, text)
				break
			}
		}
		if name != "cmdline" {
			continue
		}
		for _, arg := range args {
			if (arg == args[0] || strings.HasPrefix(arg, "/")) && !bytes.Contains(text, []byte("\x00"+arg+"\x00")) {
				h.Errorf("the call is not visible: %s is not in %.300q", arg, text)
			}
		}
	}
}
