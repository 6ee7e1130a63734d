package crash

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// list returns all files of the world but those inside mounts.
func (w *world) list() map[string]bool {
	files := map[string]bool{}
	var root unix.Stat_t
	if err := unix.Lstat(w.dir, &root); err != nil {
		w.t.Fatal(err)
	}
	err := filepath.WalkDir(w.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(path, w.dir+"/")
		files[name] = true
		if d.IsDir() && (name == "shared" || w.isMountPoint(path)) {
			return fs.SkipDir
		}
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.t.Fatal(err)
	}
	return files
}

func (w *world) isMountPoint(path string) bool {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_NO_AUTOMOUNT|unix.AT_SYMLINK_NOFOLLOW, 0, &st)
	return err == nil && path != w.dir && st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}

// processes returns the processes of this world, in words, but not the server
// of a filesystem that is mounted.
func (w *world) processes() []string {
	mark := []byte(envWorld + "=" + w.dir + "\x00")
	entries, _ := os.ReadDir("/proc")
	var found []string
	for _, e := range entries {
		if e.Name()[0] < '0' || e.Name()[0] > '9' {
			continue
		}
		env, _ := os.ReadFile("/proc/" + e.Name() + "/environ") // gone, or a kernel thread
		serves := bytes.Contains(env, []byte(envRole+"="+roleServer+"\x00"))
		if bytes.Contains(env, mark) && !(serves && len(w.mounts()) > 0) {
			cmdline, _ := os.ReadFile("/proc/" + e.Name() + "/cmdline")
			found = append(found, e.Name()+" "+strings.ReplaceAll(strings.TrimSuffix(string(cmdline), "\x00"), "\x00", " "))
		}
	}
	return found
}

// loops returns the loop devices that have an image of this world.
func (w *world) loops() []string {
	entries, _ := os.ReadDir("/sys/block")
	var found []string
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "loop") {
			continue
		}
		backing, _ := os.ReadFile("/sys/block/" + e.Name() + "/loop/backing_file") // none, as a rule
		if strings.HasPrefix(string(backing), w.path("images")+"/") {
			found = append(found, "/dev/"+e.Name())
		}
	}
	return found
}
