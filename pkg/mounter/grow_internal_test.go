package mounter

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/test/testenv"
)

// The namespace goes when the call returns, also if Go ran it on the first
// thread of the process, which then stayed in it for ever: no mount that the
// node had at that time could be released.
func TestInPrivateNamespace(t *testing.T) {
	testenv.Need(t, "mount")
	namespace := func(of string) string {
		link, err := os.Readlink(of + "/ns/mnt")
		if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ESRCH) {
			t.Error(err)
		}
		return link
	}
	own := namespace("/proc/self")
	for range 100 {
		done := make(chan error, 4)
		for range cap(done) {
			go func() {
				done <- inPrivateNamespace(func() error {
					if unix.Gettid() == unix.Getpid() {
						return errors.New("on the first thread")
					}
					if namespace("/proc/thread-self") == own {
						return errors.New("in no namespace of its own")
					}
					return nil
				})
			}()
		}
		for range cap(done) {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		runtime.Gosched() // or the first thread is never idle
	}
	want := errors.New("wanted")
	if err := inPrivateNamespace(func() error { return want }); !errors.Is(err, want) {
		t.Errorf("error %v", err)
	}
	strangers := func() (n int) {
		tasks, err := filepath.Glob("/proc/self/task/*")
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range tasks {
			if ns := namespace(task); ns != "" && ns != own {
				n++
			}
		}
		return n
	}
	for late := time.After(10 * time.Second); strangers() > 0; {
		select {
		case <-late:
			t.Fatalf("%d threads are in other namespaces", strangers())
		case <-time.After(time.Millisecond):
		}
	}
}
