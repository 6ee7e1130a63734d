package mounter

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// A mark on an image is an extended attribute. It says that a program was started on
// the image which must not be interrupted. A mark that is left means that it was
// interrupted. Block devices and filesystems without extended attributes have no
// marks; an operator has to decide there.
type mark string

const (
	formatting mark = "user.flexdriver.formatting"
	resizing   mark = "user.flexdriver.resizing"
)

// set marks the image behind a loop device, if it can be marked.
func (k mark) set(device string) {
	if image := BackingFile(device); image != "" {
		_ = unix.Setxattr(image, string(k), []byte("1"), 0)
	}
}

func (k mark) clear(device string) {
	if image := BackingFile(device); image != "" {
		_ = unix.Removexattr(image, string(k))
	}
}

func (k mark) on(device string) bool {
	image := BackingFile(device)
	if image == "" {
		return false
	}
	_, err := unix.Getxattr(image, string(k), nil)
	return err == nil
}

// checkBlank refuses an image that no signature was found in, and that holds
// something all the same: a file of another kind, named by mistake. What an
// interrupted mkfs has left is marked. Of block devices that is not asked:
// what was on them once need not have been wiped, and a signature is how all
// of Kubernetes tells.
func checkBlank(device string) error {
	if BackingFile(device) == "" || formatting.on(device) {
		return nil
	}
	f, err := os.Open(device)
	if err != nil {
		return err
	}
	defer f.Close()
	at, err := firstData(f)
	if err != nil || at < 0 {
		return err
	}
	return because(ErrWrongFilesystem, "the image holds no filesystem, but something else (its first byte that is not zero is at offset %d); it is not formatted over: give the path of another image, or remove this one if it is not needed", at)
}

// firstData returns the offset of the first byte that is not zero, of those
// that are looked at (see checkReadable), or -1.
func firstData(f io.ReadSeeker) (int64, error) {
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, err
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
