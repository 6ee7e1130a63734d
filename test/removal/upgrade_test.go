package removal

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/test/testenv"
)

// TestUpgradeUnderAPod: what the previous version published without a guard gets behind one
// when the daemon starts, and a pod that writes all the time does not notice.
func TestUpgradeUnderAPod(t *testing.T) {
	w := newWorld(t, kubelet(t, "1.24"))
	dir := w.volume.Mount(pod)
	w.kill()
	w.unguard()
	if guard, above := w.device(filepath.Dir(w.target())), w.device(w.Root); guard != above {
		t.Fatal("the target path still has a guard")
	}
	end, written := make(chan struct{}), make(chan error)
	go func() { written <- write(dir, end) }()
	w.daemon = w.Serve(csiDriver)
	testenv.Eventually(t, "the target path has a guard", func() bool {
		guard := w.device(filepath.Dir(w.target()))
		return guard != w.device(w.Root) && guard != w.device(w.target())
	})
	for range 20 {
		w.removePod()
	}
	time.Sleep(200 * time.Millisecond)
	close(end)
	if err := <-written; err != nil {
		t.Errorf("the pod noticed: %v", err)
	}
	w.volume.Unmount(pod)
	w.removeUntilGone()
}

// unguard makes of what is published what the previous version would have left.
func (w *world) unguard() {
	w.t.Helper()
	staged, err := filepath.Glob(filepath.Join(w.Root, "plugins/kubernetes.io/csi/*/*/globalmount"))
	if err != nil || len(staged) != 1 {
		w.t.Fatalf("staged: %q, %v", staged, err)
	}
	w.must(unix.Unmount(w.target(), 0))
	w.must(unix.Unmount(filepath.Dir(w.target()), 0))
	w.must(os.Mkdir(w.target(), 0o750))
	w.must(unix.Mount(staged[0], w.target(), "", unix.MS_BIND, ""))
}

func (w *world) device(path string) uint64 {
	w.t.Helper()
	var st unix.Stat_t
	w.must(unix.Stat(path, &st))
	return st.Dev
}

// write writes to a file that stays open, and makes others, until it is to end.
func write(dir string, end chan struct{}) error {
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	for n := 0; ; n++ {
		if _, err := fmt.Fprintln(log, n); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "file"), []byte("x"), 0o600); err != nil {
			return err
		}
		select {
		case <-end:
			return os.Remove(filepath.Join(dir, "file"))
		case <-time.After(time.Millisecond):
		}
	}
}
