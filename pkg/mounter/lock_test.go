package mounter_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/pkg/mounter"
)

func TestLockName(t *testing.T) {
	file := filepath.Join(newDir(t), "lock")
	first, err := mounter.LockName(t.Context(), file, "a")
	if err != nil {
		t.Fatal(err)
	}
	other, err := mounter.LockName(t.Context(), file, "b")
	if err != nil {
		t.Fatal(err) // another name, another lock
	}
	other.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = mounter.LockName(ctx, file, "a")
	requireError(t, err, mounter.ErrBusy, "another call is at work on it", "deadline")
	first.Close()
	again, err := mounter.LockName(t.Context(), file, "a")
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
	if st, err := os.Stat(file); err != nil || st.Size() != 0 || st.Mode() != 0o600 {
		t.Errorf("the file has %d bytes and mode %v, %v", st.Size(), st.Mode(), err)
	}
}

func TestLockNameExcludes(t *testing.T) {
	file := filepath.Join(newDir(t), "lock")
	var inside atomic.Int32
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			for range 25 {
				lock, err := mounter.LockName(t.Context(), file, "the same")
				if err != nil {
					t.Error(err)
					return
				}
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d at a time", n)
				}
				runtime.Gosched()
				inside.Add(-1)
				lock.Close()
			}
		})
	}
	wait.Wait()
}

func TestLockNameFails(t *testing.T) {
	dir := newDir(t)
	_, err := mounter.LockName(t.Context(), filepath.Join(dir, "none/lock"), "a")
	requireError(t, err, fs.ErrNotExist)
	if err := os.Symlink("elsewhere", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	_, err = mounter.LockName(t.Context(), filepath.Join(dir, "link"), "a")
	requireError(t, err, unix.ELOOP)
}

// A lock goes with the process that has it, however that ends, and is not
// inherited by the programs that it starts.
func TestLockNameDiesWithProcess(t *testing.T) {
	const envFile = "MOUNTER_TEST_LOCK"
	if file := os.Getenv(envFile); file != "" {
		if _, err := mounter.LockName(context.Background(), file, "a"); err != nil {
			t.Fatal(err)
		}
		heir := exec.Command("sleep", "60") // outlives this process
		if err := heir.Start(); err != nil {
			t.Fatal(err)
		}
		fmt.Printf("\nlocked %d\n", heir.Process.Pid)
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	}
	file := filepath.Join(newDir(t), "lock")
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestLockNameDiesWithProcess$")
	cmd.Env = append(os.Environ(), envFile+"="+file)
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var heir int
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if _, err := fmt.Sscanf(lines.Text(), "locked %d", &heir); err == nil {
			break
		}
	}
	if heir == 0 {
		t.Fatal("the other process has no lock")
	}
	defer func() { _ = unix.Kill(heir, unix.SIGKILL) }()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = mounter.LockName(ctx, file, "a")
	requireError(t, err, mounter.ErrBusy)

	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	lock, err := mounter.LockName(t.Context(), file, "a")
	if err != nil {
		t.Fatal(err)
	}
	lock.Close()
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
}

// TestUnlockIsAtOnce: programs that other threads are starting hold the file
// for a moment, and not the lock.
func TestUnlockIsAtOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lock")
	stop := make(chan struct{})
	var starters sync.WaitGroup
	for range 4 {
		starters.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_ = exec.Command("true").Run()
				}
			}
		})
	}
	defer starters.Wait()
	defer close(stop)
	once, cancel := context.WithCancel(t.Context())
	cancel()
	for i := range 500 {
		lock, err := mounter.LockName(once, file, "a")
		if err != nil {
			t.Fatalf("time %d: %v", i, err)
		}
		if err := lock.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
