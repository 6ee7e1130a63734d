package mounter_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/pkg/mounter"
	"github.com/flex2csi/flex2csi/test/testenv"
)

func TestOpenImage(t *testing.T) {
	testenv.Need(t, "root") // to give a file to another user
	dir := newDir(t)
	root := filepath.Join(dir, "images")
	mustMkdir(t, root+"/inside")
	mustMkdir(t, dir+"/outside")
	mustWrite(t, root+"/there", "content")
	mustWrite(t, dir+"/outside/there", "content")
	for link, to := range map[string]string{"out": "../outside", "in": "inside", "dangling": "nowhere", "file": "there", "outfile": "../outside/there"} {
		if err := os.Symlink(to, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"one", "another's", "open"} {
		mustWrite(t, filepath.Join(root, name), "content")
	}
	mustMkdir(t, root+"/public")
	mustWrite(t, root+"/public/there", "content")
	if err := errors.Join(os.Link(root+"/one", root+"/linked"), os.WriteFile(root+"/empty", nil, 0o600), os.WriteFile(root+"/empty-1", nil, 0o600), os.WriteFile(root+"/empty-2", nil, 0o600), os.Chown(root+"/another's", 1000, 1000),
		os.Chmod(root+"/open", 0o666), os.Chmod(root+"/public", 0o777)); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(root+"/fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", filepath.Join(root, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()

	const some = 3<<20 + 1
	for name, tt := range map[string]struct {
		path              string // below root, if relative
		size              int64
		noRoots, anywhere bool
		kind              error
		text              string // of an error
		want              int64  // size
		created           bool
	}{
		"there":                {path: "there", want: 7},
		"there, with a size":   {path: "there", size: some, want: 7},
		"link to it":           {path: "file", kind: mounter.ErrUnsafePath, text: "/file is a symbolic link"},
		"through a link":       {path: "in/new-1", size: some, kind: mounter.ErrUnsafePath, text: "/in is a symbolic link"},
		"new":                  {path: "new", size: some, want: some, created: true},
		"new, odd name":        {path: "-rf a,b\"c=%d", size: 1, want: 1, created: true},
		"outside, anywhere":    {path: dir + "/outside/new", size: 1, anywhere: true, want: 1, created: true},
		"no roots":             {path: "there", noRoots: true, kind: mounter.ErrUnsafePath, text: "no roots are allowed"},
		"a root itself":        {path: root, text: "it is a directory"},
		"two names":            {path: "linked", kind: mounter.ErrUnsafePath, text: "it has 2 names (hard links)"},
		"empty":                {path: "empty", kind: fs.ErrNotExist, text: "it is empty"},
		"empty, anywhere":      {path: root + "/empty-2", size: some, anywhere: true, want: some, created: true},
		"empty, with a size":   {path: "empty-1", size: some, want: some, created: true},
		"dangling, anywhere":   {path: root + "/dangling", size: 1, anywhere: true, kind: unix.ELOOP, text: "it is a symbolic link that leads nowhere"},
		"another's":            {path: "another's", kind: mounter.ErrUnsafePath, text: "belongs to user 1000"},
		"open to others":       {path: "open", kind: mounter.ErrUnsafePath, text: "can be written to by others than root (mode 0666)"},
		"in an open directory": {path: "public/there", kind: mounter.ErrUnsafePath, text: "can be written to by others than root (mode 0777)"},
		"new, in an open one":  {path: "public/new", size: 1, kind: mounter.ErrUnsafePath, text: "can be written to by others than root (mode 0777)"},
		"missing":              {path: "missing", kind: fs.ErrNotExist, text: "with the option size it would be created"},
		"missing directory":    {path: "none/new", size: 1, kind: fs.ErrNotExist, text: "is the disk that should hold it mounted?"},
		"missing dir, no size": {path: "none/new", kind: fs.ErrNotExist, text: "no such file"},
		"dangling link":        {path: "dangling", size: 1, kind: mounter.ErrUnsafePath, text: "/dangling is a symbolic link"},
		"directory":            {path: "inside", text: "it is a directory, not an image"},
		"fifo":                 {path: "fifo", text: "it is no regular file"},
		"socket":               {path: "socket", text: "it is no regular file"},
		"character device":     {path: "/dev/null", anywhere: true, text: "it is no regular file"},
		"in a file":            {path: "there/new", size: 1, kind: unix.ENOTDIR, text: "not a directory"},
		"outside":              {path: dir + "/outside/there", kind: mounter.ErrUnsafePath, text: "below none of the allowed roots (/nonexistent, " + root + ")"},
		"outside, new":         {path: dir + "/outside/new-2", size: 1, kind: mounter.ErrUnsafePath, text: "below none of the allowed roots"},
		"link out":             {path: "out/there", kind: mounter.ErrUnsafePath, text: "is a symbolic link"},
		"link out, new":        {path: "out/new-3", size: 1, kind: mounter.ErrUnsafePath, text: "is a symbolic link"},
		"link to file outside": {path: "outfile", kind: mounter.ErrUnsafePath, text: "is a symbolic link"},
		"dots":                 {path: root + "/../outside/there", kind: mounter.ErrUnsafePath, text: "not clean"},
		"relative":             {path: "./there", anywhere: true, kind: mounter.ErrUnsafePath, text: "not absolute"},
		"newline":              {path: "a\nb", size: 1, kind: mounter.ErrUnsafePath, text: "control characters"},
		"too large":            {path: "huge", size: 1 << 62, kind: mounter.ErrTooLarge, text: "the filesystem that holds it has"},
		"name too long":        {path: strings.Repeat("x", 256), size: 1, kind: unix.ENAMETOOLONG, text: "too long"},
	} {
		t.Run(name, func(t *testing.T) {
			var m mounter.Mounter
			path, roots := tt.path, mounter.Roots{Below: []string{"/nonexistent", root}}
			if !filepath.IsAbs(path) && !strings.HasPrefix(path, ".") {
				path = filepath.Join(root, path)
			}
			if tt.noRoots {
				roots = mounter.Roots{}
			}
			if tt.anywhere {
				roots = anywhere()
			}
			image, err := m.OpenImage(t.Context(), path, tt.size, roots)
			if tt.text != "" {
				requireError(t, err, tt.kind, "open image ", tt.text)
				if _, err := os.Lstat(dir + "/outside/new-3"); !errors.Is(err, fs.ErrNotExist) {
					t.Error("made a file outside of the roots")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer image.Close()
			size, err := image.Size()
			if size != tt.want || err != nil || image.Created != tt.created || image.Path() != path || image.ReadOnly || !image.InPlace() {
				t.Errorf("size %d, %v, created %t, path %s, read-only %t, in place %t", size, err, image.Created, image.Path(), image.ReadOnly, image.InPlace())
			}
			if tt.created {
				var st unix.Stat_t
				if err := unix.Stat(path, &st); err != nil || st.Blocks != 0 || st.Mode&0o7777 != 0o600 || st.Nlink != 1 {
					t.Errorf("made a file of %d blocks, mode %o, %d links (%v)", st.Blocks, st.Mode, st.Nlink, err)
				}
			}
			image.Remove()
			if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) != tt.created {
				t.Errorf("Remove: %v", err)
			}
		})
	}
	names, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasPrefix(name.Name(), ".") || strings.HasPrefix(name.Name(), "huge") {
			t.Errorf("left %s", name.Name())
		}
	}
}

// An image directly below the root of the filesystem.
func TestOpenImageInRoot(t *testing.T) {
	testenv.Need(t, "root")
	var m mounter.Mounter
	path := fmt.Sprintf("/.flex-test-%d.img", os.Getpid())
	image, err := m.OpenImage(t.Context(), path, testenv.MiB, anywhere())
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(path)
	defer image.Close()
	if !image.Created {
		t.Error("not created")
	}
}

// A process that sees the image sees all of it, and one of many creates it.
func TestOpenImageAtOnce(t *testing.T) {
	var m mounter.Mounter
	dir := newDir(t)
	const size = 5 << 20
	for round := range 20 {
		path := filepath.Join(dir, fmt.Sprint(round))
		var created atomic.Int32
		var wait sync.WaitGroup
		for range 8 {
			wait.Go(func() {
				image, err := m.OpenImage(t.Context(), path, size, anywhere())
				if err != nil {
					t.Error(err)
					return
				}
				defer image.Close()
				if image.Created {
					created.Add(1)
				}
				if got, err := image.Size(); got != size || err != nil {
					t.Errorf("size is %d, %v", got, err)
				}
			})
		}
		wait.Wait()
		if created.Load() != 1 {
			t.Errorf("created %d times", created.Load())
		}
	}
}

func TestImageGrow(t *testing.T) {
	testenv.Need(t, "loop")
	var m mounter.Mounter
	d := newDisk(t, testenv.MiB)
	image, err := m.OpenImage(t.Context(), d.path, 0, anywhere())
	if err != nil {
		t.Fatal(err)
	}
	defer image.Close()
	for _, tt := range []struct{ to, want int64 }{
		{4 * testenv.MiB, 4 * testenv.MiB},
		{4 * testenv.MiB, 4 * testenv.MiB},
		{2 * testenv.MiB, 4 * testenv.MiB}, // never less
		{5*testenv.MiB + 512, 5*testenv.MiB + 512},
	} {
		if err := m.Grow(t.Context(), image, tt.to); err != nil {
			t.Fatal(err)
		}
		onDisk, err := image.Size()
		onDevice, deviceErr := mounter.DeviceSize(d.device)
		if onDisk != tt.want || onDevice != tt.want || err != nil || deviceErr != nil {
			t.Errorf("after growing to %d: %d bytes, %v; device %d bytes, %v", tt.to, onDisk, err, onDevice, deviceErr)
		}
	}
	requireError(t, m.Grow(t.Context(), image, 1<<62), mounter.ErrTooLarge, "grow image "+d.path)
	if got, _ := image.Size(); got != 5*testenv.MiB+512 {
		t.Errorf("%d bytes after growing failed", got)
	}
}

// A loop device does not know the new size if the process that grew the image was
// killed. It learns the size from the next call.
func TestImageGrownBefore(t *testing.T) {
	testenv.Need(t, "loop")
	var m mounter.Mounter
	d := newDisk(t, testenv.MiB)
	if err := os.Truncate(d.path, 2*testenv.MiB); err != nil {
		t.Fatal(err)
	}
	image, err := m.OpenImage(t.Context(), d.path, 0, anywhere())
	if err != nil {
		t.Fatal(err)
	}
	defer image.Close()
	if err := m.Grow(t.Context(), image, 2*testenv.MiB); err != nil {
		t.Fatal(err)
	}
	if got, err := mounter.DeviceSize(d.device); got != 2*testenv.MiB || err != nil {
		t.Errorf("the device has %d bytes, %v", got, err)
	}
}
