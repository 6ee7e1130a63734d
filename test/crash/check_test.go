package crash

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
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

func (w *world) finished(dir string, info *mountinfo.Info) error {
	if err := w.rightSource(dir, info); err != nil {
		return err
	}
	options := strings.Split(info.Options, ",")
	if ro := slices.Contains(options, "ro"); ro != w.readOnly[dir] {
		return fmt.Errorf("its options are %s, want read-only=%t", info.Options, w.readOnly[dir])
	}
	if err := w.rightFiles(dir); err != nil {
		return err
	}
	if err := w.rightSize(dir); err != nil {
		return err
	}
	if w.volume.fsGroup != nil && !w.readOnly[dir] && strings.Contains(dir, "/pods/") {
		return rightGroup(dir, uint32(*w.volume.fsGroup))
	}
	return nil
}

func (w *world) rightSource(dir string, info *mountinfo.Info) error {
	switch w.volume.kind {
	case kindImage:
		backing, err := os.ReadFile("/sys/block/" + filepath.Base(info.Source) + "/loop/backing_file")
		if err != nil || strings.TrimSpace(string(backing)) != w.image() {
			return fmt.Errorf("its source is %s with the image %q (%v)", info.Source, strings.TrimSpace(string(backing)), err)
		}
	case kindDevice:
		if info.Source != w.device {
			return fmt.Errorf("its source is %s, want %s", info.Source, w.device)
		}
	case kindPath:
		if there, err := sameFile(dir, w.path("shared")); err != nil || !there {
			return fmt.Errorf("it is not the directory (%v)", err)
		}
		return nil
	case kindSource:
		if info.Source != w.fuseSource() {
			return fmt.Errorf("its source is %s", info.Source)
		}
	case kindMemory:
		if info.FSType != "tmpfs" {
			return fmt.Errorf("it is %s, want tmpfs", info.FSType)
		}
		return nil
	}
	if info.FSType != w.volume.fsType {
		return fmt.Errorf("it is %s, want %s", info.FSType, w.volume.fsType)
	}
	return nil
}

// rightSize looks whether the volume has grown, if it must have. A filesystem
// takes a part of it for itself.
func (w *world) rightSize(dir string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return err
	}
	have, old := int64(st.Blocks)*st.Frsize, w.volume.size
	if least := old + (w.volume.grown()-old)/5; w.expanded && have < least {
		return fmt.Errorf("it has %d bytes, and was expanded from %d to %d", have, old, w.volume.grown())
	}
	return nil
}

func sameFile(a, b string) (bool, error) {
	x, err := os.Stat(a)
	if err != nil {
		return false, err
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y), err
}

// rightFiles looks for all that was written to the volume.
func (w *world) rightFiles(dir string) error {
	for name, want := range w.files {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return fmt.Errorf("data is lost: %w", err)
		}
		if string(got) != want {
			return fmt.Errorf("data is damaged: %s holds %.40q (%d bytes), want %.40q (%d bytes)", name, got, len(got), want, len(want))
		}
	}
	return nil
}

// rightGroup looks whether all files have the fsGroup, as the kubelet would
// give it (pkg/volume/volume_linux.go).
func rightGroup(dir string, gid uint32) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.Name() == "lost+found" {
			return nil // its parent is what is looked at
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		if st.Gid != gid {
			return fmt.Errorf("%s has the group %d, want the fsGroup %d", path, st.Gid, gid)
		}
		if d.IsDir() && st.Mode&unix.S_ISGID == 0 || st.Mode&0o060 != 0o060 {
			return fmt.Errorf("%s has the mode %o, which is none of a volume with an fsGroup", path, st.Mode&0o7777)
		}
		return nil
	})
}

// use works with the volume as a pod does.
func (w *world) use(dir string) error {
	name := fmt.Sprintf("written-%d", w.calls%5)
	content := fmt.Sprintf("by call %d to %s\n", w.calls, dir)
	err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o664)
	if err == nil {
		err = os.Chmod(filepath.Join(dir, name), 0o664) // whatever the umask
	}
	if w.readOnly[dir] {
		if errors.Is(err, unix.EROFS) {
			return nil
		}
		return fmt.Errorf("write to the read-only %s: %v, want EROFS", w.short(dir), err)
	}
	if err != nil {
		return fmt.Errorf("the volume cannot be written to: %w", err)
	}
	if w.files == nil {
		w.files = map[string]string{}
	}
	w.files[name] = content
	return w.rightFiles(dir)
}

// fill writes the files that must survive all kills: a small tree, for the
// fsGroup to be given to.
func (w *world) fill(dir string) error {
	for i := range 6 {
		name := fmt.Sprintf("known-%d/file", i)
		if i%2 == 0 {
			name = fmt.Sprintf("known-%d", i)
		}
		content := strings.Repeat(fmt.Sprintf("known content %d\n", i), 1+i*1000)
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			return err
		}
		w.files[name] = content
	}
	return nil
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
	case "var/lib/kubelet/plugins/kubernetes.io/flexvolume/.flexdriver.lock", "images/disk.img":
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
	err := onThread(func() (err error) {
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
