package crash

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// state is the state of a volume before a life begins.
type state int

const (
	// absent: there is no image yet; the first call makes it.
	absent state = iota
	// kept: the image that the life before has left, and that all kills so
	// far were at. It is made by an undisturbed life first.
	kept
	// copied: a copy of an image that is made once, so that each life does
	// the same.
	copied
)

// The kinds of volumes, by the option that says what one is made of.
const (
	kindImage  = "image"
	kindDevice = "device"
	kindSource = "source"
	kindPath   = "path"
	kindMemory = "medium"
)

// A volume is one that lives are led with.
type volume struct {
	kind     string
	fsType   string
	size     int64
	attach   bool
	readOnly bool
	fsGroup  *int64
	state    state
	// dirty makes the copied image one of a filesystem that was not unmounted.
	dirty bool
	// left attaches the image to a loop device first, and leaves it there.
	left bool
	// needs are those of testenv.Need.
	needs []string
}

// grown is the size that expandfs is asked for.
func (v *volume) grown() int64 { return v.size * 3 / 2 }

func (v *volume) isDisk() bool { return v.kind == kindImage || v.kind == kindDevice }

// keeps reports whether the volume keeps what was written to it after it was
// taken down.
func (v *volume) keeps() bool { return v.isDisk() || v.kind == kindPath }

// options are the kubelet's, without those that depend on the callout.
func (v *volume) options(w *world) flex.Options {
	o := flex.Options{FSType: v.fsType, ReadOnly: v.readOnly}
	size := strconv.FormatInt(v.size, 10)
	switch v.kind {
	case kindImage:
		o.User = map[string]string{kindImage: w.image(), "size": size}
	case kindDevice:
		o.User = map[string]string{kindDevice: w.device}
	case kindPath:
		o.User = map[string]string{kindPath: w.path("shared")}
	case kindMemory:
		o.User = map[string]string{kindMemory: "memory", "size": size}
	case kindSource:
		o.User = map[string]string{kindSource: fuseSource}
	}
	return o
}

// device is what waitforattach answers.
func (v *volume) device(w *world) string {
	if v.isDisk() {
		return v.options(w).User[v.kind]
	}
	return ""
}

// prepare makes what a life begins with.
func (v *volume) prepare(w *world) error {
	if !v.keeps() || v.state == absent {
		w.files = nil
	}
	switch {
	case v.kind == kindImage && v.state == absent:
		return removeIfThere(w.image())
	case v.kind == kindImage && v.state == copied:
		w.files = maps.Clone(w.known)
		if err := copyImage(w.template(), w.image()); err != nil {
			return err
		}
	}
	if v.left {
		_, err := attachLoop(w.image())
		w.forgotten = err == nil
		return err
	}
	return nil
}

// attachLoop attaches an image as losetup(8) does, to stay.
func attachLoop(image string) (device string, err error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer control.Close()
	backing, err := os.OpenFile(image, os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer backing.Close()
	for {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return "", err
		}
		device = fmt.Sprintf("/dev/loop%d", n)
		loop, err := os.OpenFile(device, os.O_RDWR, 0)
		if err != nil {
			return "", err
		}
		err = unix.IoctlLoopConfigure(int(loop.Fd()), &unix.LoopConfig{Fd: uint32(backing.Fd())})
		loop.Close()
		if !errors.Is(err, unix.EBUSY) { // of another process by now
			return device, err
		}
	}
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// copyImage copies an image. The copy is a new file even if one of its name is
// there, because that one may still be attached.
func copyImage(from, to string) error {
	if err := removeIfThere(to); err != nil {
		return err
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	st, err := in.Stat()
	if err != nil {
		return err
	}
	if err := out.Truncate(st.Size()); err != nil {
		return err
	}
	return copyData(out, in)
}

// copyData leaves out holes, and what could be one: the 64 MiB of zeros that
// mkfs.xfs writes are not to be copied each time.
func copyData(out, in *os.File) error {
	buf, zero := make([]byte, 64<<10), make([]byte, 64<<10)
	for at := int64(0); ; {
		data, err := unix.Seek(int(in.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil // nothing but a hole to the end
		}
		if err != nil {
			return fmt.Errorf("seek data in %s: %w", in.Name(), err)
		}
		n, err := in.ReadAt(buf, data)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if !bytes.Equal(buf[:n], zero[:n]) {
			if _, err := out.WriteAt(buf[:n], data); err != nil {
				return err
			}
		}
		at = data + int64(n)
	}
}

// smallest: sizes are small, since images are copied and checked thousands of times.
func smallest(fsType string) int64 {
	switch fsType {
	case "xfs":
		return 300 * testenv.MiB
	case "btrfs":
		return 256 * testenv.MiB // less cannot be resized
	}
	return 32 * testenv.MiB
}
