package mounter

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// A mark is an extended attribute: of the image behind a loop device, or of the node of
// another block device, which goes with the device and with the node's next start. It
// says that a program was started on the disk which must not be interrupted. A mark that
// is left means that it was interrupted. Where there are no extended attributes there
// are no marks; an operator has to decide there.
type mark string

const (
	formatting mark = "formatting"
	resizing   mark = "resizing"
)

// markLimit is how long the node of a device tells of an interrupted mkfs. Another
// program may write to the disk meanwhile, and the kubelet tries again within minutes.
const markLimit = time.Hour

// place is where the mark is, and under which name.
func (k mark) place(device string) (path, name string) {
	image := BackingFile(device)
	switch {
	case image != "":
		return image, "user.flexdriver." + string(k)
	case numberOf(device) == 0:
		return device, "user.flexdriver." + string(k)
	}
	return device, "trusted.flexdriver." + string(k)
}

// set marks a disk, if it can be marked.
func (k mark) set(device string) {
	path, name := k.place(device)
	_ = unix.Setxattr(path, name, strconv.AppendInt(nil, time.Now().Unix(), 10), 0)
}

func (k mark) clear(device string) {
	path, name := k.place(device)
	_ = unix.Removexattr(path, name)
}

func (k mark) on(device string) bool {
	path, name := k.place(device)
	value := make([]byte, 32)
	n, err := unix.Getxattr(path, name, value)
	if err != nil || k != formatting || path != device {
		return err == nil
	}
	at, err := strconv.ParseInt(string(value[:n]), 10, 64)
	return err == nil && time.Since(time.Unix(at, 0)).Abs() < markLimit
}

// checkBlank refuses a disk that cannot be read, and one that no signature was found in
// and that holds something all the same: what a program wrote to a volume with
// volumeMode: Block, or an image that is a file of another kind. What an interrupted mkfs
// has left is marked.
func checkBlank(device string) error {
	f, err := os.Open(device)
	if err != nil {
		return err
	}
	defer f.Close()
	at, err := firstData(f)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return err
	case err != nil:
		return fmt.Errorf("cannot tell what is on it, so it is not touched: %w", err)
	case at < 0 || formatting.on(device):
		return nil
	case BackingFile(device) != "" || numberOf(device) == 0:
		return because(ErrWrongFilesystem, "the image holds no filesystem, but something else (its first byte that is not zero is at offset %d); it is not formatted over: give the path of another image, or remove this one if it is not needed", at)
	}
	return because(ErrWrongFilesystem, "the disk holds no filesystem, but something else (a byte that is not zero is at offset %d); it is not formatted over: name another disk, or clear this one if nothing on it is needed (blkdiscard --zeroout %s)", at, device)
}

// firstData returns the offset of the first byte that is not zero, of those
// that are looked at (see probed), or -1.
func firstData(f io.ReadSeeker) (int64, error) {
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, err
	}
	if size == 0 {
		return 0, errors.New("the device has no size: no medium, or not attached")
	}
	buf, zero := make([]byte, 64<<10), make([]byte, 64<<10)
	for _, part := range probed(size) {
		for at := part.at; at < part.at+part.length; at += int64(len(buf)) {
			chunk := buf[:min(int64(len(buf)), part.at+part.length-at)]
			if _, err := f.Seek(at, io.SeekStart); err != nil {
				return 0, err
			}
			if _, err := io.ReadFull(f, chunk); err != nil {
				return 0, fmt.Errorf("it cannot be read at offset %d: %w", at, err)
			}
			if !bytes.Equal(chunk, zero[:len(chunk)]) {
				return at + int64(bytes.IndexFunc(chunk, func(r rune) bool { return r != 0 })), nil
			}
		}
	}
	return -1, nil
}

// errKeeps is what a commander answers that must not format.
var errKeeps = errors.New("this disk is not formatted: there is a filesystem on it")
