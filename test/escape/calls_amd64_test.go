package escape

import "golang.org/x/sys/unix"

// oldCalls are those that other architectures do not have, by where their path is.
func oldCalls() map[uint64]change {
	return map[uint64]change{
		unix.SYS_RENAME:  {"renames", []at{{path: 0}, {path: 1}}},
		unix.SYS_LINK:    {"links", []at{{path: 0}, {path: 1}}},
		unix.SYS_SYMLINK: {"links", []at{{path: 1}}},
		unix.SYS_UNLINK:  {"removes", []at{{path: 0}}},
		unix.SYS_RMDIR:   {"removes", []at{{path: 0}}},
		unix.SYS_MKDIR:   {"makes", []at{{path: 0}}},
		unix.SYS_MKNOD:   {"makes", []at{{path: 0}}},
		unix.SYS_CHMOD:   {"changes", []at{{path: 0}}},
		unix.SYS_CHOWN:   {"changes", []at{{path: 0}}},
		unix.SYS_LCHOWN:  {"changes", []at{{path: 0}}},
	}
}

// More of them.
const (
	sysOpen   = unix.SYS_OPEN
	sysCreat  = unix.SYS_CREAT
	sysLchown = unix.SYS_LCHOWN
)
