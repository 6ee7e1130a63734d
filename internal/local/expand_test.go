package local

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/test/testenv"
)

func TestExpandRefuses(t *testing.T) {
	testenv.Need(t, "ext4")
	w := newWorld(t)
	shared := w.shared()
	device := w.disk("disk", 32<<20)
	w.run("mkfs.ext4", "-q", device)
	memory, directory, empty := w.pod("memory"), w.pod("directory"), w.pod("empty")
	w.mount(memory, options("medium", "memory", "size", "4Mi"))
	w.mount(directory, options("path", shared))
	for name, tt := range map[string]struct {
		dir      string
		o        flex.Options
		size     int64
		old      int64
		code     flex.Code
		texts    []string
		volumeOK bool // expandvolume has nothing against it
	}{
		"to nothing":    {empty, options("device", device), 0, 0, flex.CodeInvalidArgument, []string{"the new size is 0 bytes"}, false},
		"negative":      {empty, options("device", device), -1, 0, flex.CodeInvalidArgument, []string{"the new size is -1 bytes"}, false},
		"shrink":        {empty, options("device", device), 1 << 20, 2 << 20, flex.CodeInvalidArgument, []string{"smaller than the old one", "never shrinks"}, false},
		"read-only":     {empty, options("device", device, "ro", "true"), 2 << 20, 1 << 20, flex.CodeFailedPrecondition, []string{"read-only here"}, false},
		"options":       {empty, options("device", "x"), 2 << 20, 1 << 20, flex.CodeInvalidArgument, []string{"not absolute"}, false},
		"device":        {empty, options("device", device), 64 << 20, 32 << 20, flex.CodeFailedPrecondition, []string{"has 33554432 bytes, fewer than the 67108864 asked for", "rescan"}, false},
		"no device":     {empty, options("device", w.path("none")), 64 << 20, 0, flex.CodeNotFound, []string{"no such file"}, false},
		"no image":      {empty, options("image", w.image("none.img")), 64 << 20, 0, flex.CodeNotFound, []string{"no such file"}, false},
		"other there":   {memory, options("device", device), 32 << 20, 0, flex.CodeFailedPrecondition, []string{"has tmpfs (tmpfs) on", "not this volume"}, true},
		"not mounted":   {empty, options("medium", "memory"), 32 << 20, 0, flex.CodeFailedPrecondition, []string{"is not mounted at"}, false},
		"no memory":     {directory, options("medium", "memory"), 32 << 20, 0, flex.CodeFailedPrecondition, []string{"not this volume"}, false},
		"a directory":   {directory, options("path", shared), 1 << 60, 0, flex.CodeFailedPrecondition, []string{"cannot be grown from here", "grow it where it is served"}, false},
		"not a place":   {"/mnt", options("medium", "memory"), 1 << 20, 0, flex.CodeInvalidArgument, []string{"is no directory of a FlexVolume"}, false},
		"no such place": {filepath.Join(filepath.Dir(filepath.Dir(empty)), "none", "pv"), options("medium", "memory"), 1 << 20, 0, flex.CodeNotFound, []string{"no such file"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := call(flex.CommandExpandFS, tt.dir, tt.o)
			if name == "no such place" {
				c.Dir = filepath.Join(w.kubelet.Root, "pods/none/volumes/example.com~disk/pv")
			}
			c.NewSize, c.OldSize = tt.size, tt.old
			w.refused(w.do(c), tt.code, tt.texts...)
			c.Command = flex.CommandExpandVolume
			if err := w.do(c); tt.volumeOK != (err == nil) {
				t.Errorf("expandvolume: %v", err)
			}
		})
	}
	// Large enough as it is.
	for dir, o := range map[string]flex.Options{memory: options("medium", "memory"), directory: options("path", shared), empty: options("device", device)} {
		c := call(flex.CommandExpandFS, dir, o)
		c.NewSize = 4 << 20
		if err := w.do(c); err != nil {
			t.Error(err)
		}
	}
	w.unmount(memory)
	w.unmount(directory)
}

// An image grows, however often that is asked for, mounted or not.
func TestExpandImage(t *testing.T) {
	testenv.Need(t, "xfs")
	w := newWorld(t)
	image, dir := w.image("disk.img"), w.pod("a")
	o := options("image", image, "size", "300Mi", "fsType", "xfs")
	expand := func(size int64) {
		t.Helper()
		c := call(flex.CommandExpandFS, dir, o)
		c.NewSize = size
		if err := w.do(c); err != nil {
			t.Fatal(err)
		}
	}
	blocks := func() int64 {
		t.Helper()
		var st unix.Statfs_t
		if err := unix.Statfs(dir, &st); err != nil {
			t.Fatal(err)
		}
		return int64(st.Blocks) * st.Bsize
	}
	w.mount(dir, o)
	w.write(dir+"/file", "content")
	expand(500 << 20)
	expand(500 << 20)
	expand(400 << 20) // late, and done already
	if got := blocks(); got < 400<<20 {
		t.Errorf("%d bytes after growing to 500Mi", got)
	}
	w.unmount(dir)
	expand(700 << 20)
	w.mounted(dir, false)
	w.mount(dir, o)
	if got := blocks(); got < 600<<20 {
		t.Errorf("%d bytes after growing to 700Mi", got)
	}
	if got := w.read(dir + "/file"); got != "content" {
		t.Errorf("file is %q", got)
	}
	w.unmount(dir)
}

// After an expandfs that failed half-way, with the disk grown and not its filesystem, the
// next pod starts, and the kubelet's next expandfs does the rest (rook/rook#5431).
func TestMountAfterFailedExpansion(t *testing.T) {
	testenv.Need(t, "ext4", "xfs", "loop")
	for fsType, program := range map[string]string{"ext4": "resize2fs", "xfs": "xfs_growfs"} {
		t.Run(fsType, func(t *testing.T) {
			before := leastSize(fsType) + 32<<20
			after := before + 64<<20
			w := newWorld(t)
			device, dir := w.disk("disk", before), w.pod("a")
			o := options("device", device, "fsType", fsType)
			w.mount(dir, o)
			w.write(filepath.Join(dir, "file"), "data")
			w.unmount(dir)
			if err := os.Truncate(w.path("disk"), after); err != nil {
				t.Fatal(err)
			}
			w.run("losetup", "--set-capacity", device)
			program, err := exec.LookPath(program)
			if err != nil {
				t.Fatal(err)
			}
			if err := unix.Mount("/bin/false", program, "", unix.MS_BIND, ""); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = unix.Unmount(program, unix.MNT_DETACH) }()
			grow := call(flex.CommandExpandFS, dir, o)
			grow.NewSize = after
			w.refused(w.do(grow), flex.CodeInternal, "grow filesystem")
			w.mount(dir, o)
			w.refused(w.do(grow), flex.CodeInternal, "grow filesystem")
			if got := w.read(filepath.Join(dir, "file")); got != "data" {
				t.Errorf("the file has %q", got)
			}
			if err := unix.Unmount(program, unix.MNT_DETACH); err != nil {
				t.Fatal(err)
			}
			err = w.do(grow)
			if err != nil && strings.Contains(err.Error(), "CAP_SYS_RESOURCE, which this one lacks") {
				w.unmount(dir)
				err = w.do(grow)
				w.mount(dir, o)
			}
			if err != nil {
				t.Error(err)
			}
			var st unix.Statfs_t
			if err := unix.Statfs(dir, &st); err != nil || int64(st.Blocks)*st.Frsize < before {
				t.Errorf("the filesystem has %d bytes, %v", int64(st.Blocks)*st.Frsize, err)
			}
			w.unmount(dir)
		})
	}
}
