package crash

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// finished checks that a mount is all that it should be.
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
		if info.Source != fuseSource {
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
