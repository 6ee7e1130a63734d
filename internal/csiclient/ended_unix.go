//go:build unix

package csiclient

import (
	"errors"

	"golang.org/x/sys/unix"
)

// ended reports whether the other end of a socket is closed.
func ended(fd uintptr) bool {
	n, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
	return err == nil && n == 0 || errors.Is(err, unix.ECONNRESET)
}
