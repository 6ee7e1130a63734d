package hostfile_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/flex2csi/flex2csi/internal/hostfile"
	"github.com/flex2csi/flex2csi/test/testenv"
)

const envPath = "FILELOCK_TEST_PATH"

// TestMain is also the process that holds a lock until it is killed.
func TestMain(m *testing.M) {
	if path := os.Getenv(envPath); path != "" {
		l, err := hostfile.TryLock(path)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("locked")
		time.Sleep(time.Minute)
		_ = l.Close()
		os.Exit(0)
	}
	testenv.Main(m)
}

// TestKilled: the lock is free as soon as its process is gone, even by kill -9.
func TestKilled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), envPath+"="+path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if said, err := bufio.NewReader(out).ReadString('\n'); said != "locked\n" {
		t.Fatalf("the other process said %q, %v", said, err)
	}
	if _, err := hostfile.TryLock(path); !errors.Is(err, hostfile.ErrHeld) {
		t.Errorf("while another process has it: %v", err)
	}
	taken := make(chan error, 1)
	go func() {
		l, err := hostfile.WaitLock(t.Context(), path)
		if err == nil {
			err = l.Close()
		}
		taken <- err
	}()
	select {
	case err := <-taken:
		t.Fatalf("waited for nothing: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	select {
	case err := <-taken:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the lock of a process that was killed is not free")
	}
}

// TestWaitEnds: who waits can be told to stop.
func TestWaitEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	l, err := hostfile.TryLock(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := hostfile.WaitLock(ctx, path); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

// TestRemoved: what is locked is what is at the path afterwards.
func TestRemoved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := hostfile.TryLock(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	second, err := hostfile.TryLock(path)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if _, err := hostfile.TryLock(path); !errors.Is(err, hostfile.ErrHeld) {
		t.Errorf("a third one: %v", err)
	}
}

// TestNoLink: a link could lead to a file that others lock.
func TestNoLink(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink(filepath.Join(dir, "elsewhere"), filepath.Join(dir, "lock")); err != nil {
		t.Fatal(err)
	}
	if l, err := hostfile.TryLock(filepath.Join(dir, "lock")); err == nil {
		l.Close()
		t.Error("a link was followed")
	}
}
