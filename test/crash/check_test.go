package crash

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/test/trace"
)

// quietPatience is how long the kernel may take to end a filesystem and its
// loop device, and a killed child.
const quietPatience = 10 * time.Second

// visible says what of the world can be seen in the mount table at one time.
// What the kubelet sees it takes for done, so everything must be finished.
func (w *world) visible() (map[string]bool, error) {
	at := map[string]bool{}
	for _, info := range w.mounts() {
		dir := info.Mountpoint
		// mount(8) dies with the driver, but what it started may still mount
		// when the driver is called again: that is the one thing which cannot
		// be prevented. Both mounts are finished, and unmount removes both.
		if at[dir] && w.volume.kind != kindSource {
			return nil, fmt.Errorf("mounts are stacked at %s", w.short(dir))
		}
		at[dir] = true
		if !slices.Contains(w.targets(), dir) {
			return nil, fmt.Errorf("something is mounted at %s", w.short(dir))
		}
		if err := w.finished(dir, info); err != nil {
			return nil, fmt.Errorf("what can be seen at %s is not the finished mount: %w", w.short(dir), err)
		}
	}
	return at, nil
}

func (w *world) short(path string) string { return strings.ReplaceAll(path, w.dir, "…") }

// mounts returns the mounts of the world.
func (w *world) mounts() []*mountinfo.Info {
	infos, err := mountinfo.GetMounts(mountinfo.PrefixFilter(w.dir))
	if err != nil {
		w.t.Fatal(err)
	}
	return infos
}

// asExpected checks the whole world between two calls. either may or may not
// be mounted; it is reported whether it is.
func (w *world) asExpected(either string) (visible bool, err error) {
	at, err := w.visible()
	if err != nil {
		return false, err
	}
	for _, dir := range w.targets() {
		switch {
		case dir == either:
			visible = at[dir]
		case !at[dir] && w.mounted[dir]:
			return false, fmt.Errorf("the mount at %s is gone", w.short(dir))
		case at[dir] && !w.mounted[dir]:
			return false, fmt.Errorf("something is mounted at %s", w.short(dir))
		}
	}
	if loops := w.loops(); len(loops) > 1 {
		return false, fmt.Errorf("the image is attached twice: %v", loops)
	}
	if len(at) == 0 && !w.volume.keeps() {
		w.files, w.expanded = nil, false
	}
	return visible, nil
}

// settled waits until there are no processes, and no loop device that nothing
// expected uses.
func (w *world) settled(visible bool) error {
	want := 0
	if w.volume.kind == "image" && (visible || len(w.expected()) > 0) || w.device != "" {
		want = 1
	}
	deadline := time.Now().Add(quietPatience)
	for wait := 500 * time.Microsecond; ; wait = min(2*wait, 20*time.Millisecond) {
		loops := w.loops()
		fine := len(loops) == want || w.forgotten && len(loops) == 1
		if fine && len(w.processes()) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("after %v there are the processes %q and the loop devices %v, want none and %d", quietPatience, w.processes(), loops, want)
		}
		time.Sleep(wait)
	}
}

// allowed are the files that calls may leave for good.
func (w *world) allowed(name string) bool {
	switch name {
	case "var/lib/kubelet/plugins/kubernetes.io/flexvolume/.flexdriver.lock", "images/" + namespace + "/disk.img":
		return true
	}
	return filepath.Base(name) == ".attached-lock"
}

// noDebris looks for files that were not there before. While a volume is
// attached there is a note of it.
func (w *world) noDebris(attached bool) error {
	for name := range w.list() {
		note, err := filepath.Match(".attached-*", filepath.Base(name))
		if err != nil {
			return err
		}
		if !w.before[name] && !w.allowed(name) && !(note && attached) {
			return fmt.Errorf("the file %s is left", name)
		}
	}
	return nil
}

// unmarked looks for a mark of work in progress on an image that is in use: it
// would allow a later call what it must not do to an image with data on it.
func (w *world) unmarked() error {
	buf := make([]byte, 1024)
	n, err := unix.Listxattr(w.image(), buf)
	if err != nil || n == 0 {
		return nil // no image, or a filesystem without marks
	}
	for name := range strings.SplitSeq(string(buf[:n]), "\x00") {
		if strings.HasPrefix(name, "user.") {
			return fmt.Errorf("the image still has the mark %s", name)
		}
	}
	return nil
}

// nothingLeft checks the end of a life.
func (w *world) nothingLeft() error {
	if left := w.mounts(); len(left) > 0 {
		return fmt.Errorf("%s is left mounted", w.short(left[0].Mountpoint))
	}
	if err := w.settled(false); err != nil {
		return err
	}
	if err := w.noDebris(false); err != nil {
		return err
	}
	return w.consistent()
}

// consistent has the filesystem's own program look for damage.
func (w *world) consistent() error {
	var check *exec.Cmd
	switch {
	case w.volume.kind != kindImage || w.files == nil:
		return nil // no life of it came as far as a mount
	case w.volume.fsType == "ext4":
		check = exec.Command("e2fsck", "-f", "-n", w.image())
	case w.volume.fsType == "xfs" && all():
		check = exec.Command("xfs_repair", "-n", "-f", w.image())
	case w.volume.fsType == "btrfs" && all():
		check = exec.Command("btrfs", "check", "--readonly", w.image())
	default:
		return nil // too slow
	}
	var output []byte
	err := trace.OnThread(func() (err error) {
		output, err = check.CombinedOutput()
		return err
	})
	if err != nil {
		return fmt.Errorf("the filesystem is damaged: %w\n%s", err, output)
	}
	return nil
}

// scrub makes an end of what a failure has left, or a life that began so.
func (w *world) scrub() {
	for _, m := range slices.Backward(w.mounts()) {
		_ = unix.Unmount(m.Mountpoint, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	}
	for _, p := range w.processes() {
		var pid int
		if n, _ := fmt.Sscan(p, &pid); n == 1 {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
	for _, device := range w.loops() {
		if f, err := os.OpenFile(device, os.O_RDWR, 0); err == nil && device != w.device {
			_ = unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0)
			f.Close()
		}
	}
	w.mounted, w.forgotten = nil, false
	_ = w.settled(false)
}
