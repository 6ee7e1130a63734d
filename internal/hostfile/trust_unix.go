//go:build unix

package hostfile

import (
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const nonblock = unix.O_NONBLOCK

func checkOwner(info fs.FileInfo) error {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Uid != 0 && int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("belongs to the user with ID %d (chown root)", stat.Uid)
	}
	return nil
}

// IsUnmapped reports whether a user is one that this user namespace does not have. To a
// rootless kubelet the node's root is such a user, and so are others of the node, which it
// cannot tell apart: those are outside of what it guards against.
func IsUnmapped(uid uint32) bool {
	users, err := os.ReadFile("/proc/self/uid_map")
	if err != nil || len(strings.Fields(string(users))) == 3 && strings.Fields(string(users))[2] == everyUser {
		return false
	}
	overflow, err := os.ReadFile("/proc/sys/kernel/overflowuid")
	return err == nil && strings.TrimSpace(string(overflow)) == strconv.FormatUint(uint64(uid), 10)
}

// everyUser is the size of a map that has all users, as that of the first namespace.
const everyUser = "4294967295"
