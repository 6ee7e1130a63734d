package flex_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestSignalsAgain: the first signal sets when the answer comes, and no later one puts it off.
func TestSignalsAgain(t *testing.T) {
	cmd := driverCommand(t, "is stuck", "mount", podDir, secretJSON)
	file := filepath.Join(t.TempDir(), "ready")
	cmd.Env = append(cmd.Env, readyEnv+"="+file)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }() // a Failure ends with 0 or 1
	for {
		if _, err := os.Stat(file); err == nil {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	start := time.Now()
	for time.Since(start) < 5*time.Second {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-done:
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
	_ = cmd.Process.Kill()
	t.Fatal("no answer 5 s after the first SIGTERM")
}
