package trace

import "golang.org/x/sys/unix"

// privateCallsHere are those that other architectures do not have.
func privateCallsHere() []uint64 {
	return []uint64{unix.SYS_ARCH_PRCTL, unix.SYS_POLL, unix.SYS_GETPGRP, unix.SYS_ALARM, unix.SYS_EPOLL_WAIT, unix.SYS_DUP2, unix.SYS_PIPE}
}

// lookingCallsHere likewise.
func lookingCallsHere() map[uint64]kind {
	return map[uint64]kind{
		unix.SYS_NEWFSTATAT: {name: "stat", path: 2},
		unix.SYS_STAT:       {name: "stat", path: 1},
		unix.SYS_LSTAT:      {name: "lstat", path: 1},
		unix.SYS_ACCESS:     {name: "access", path: 1},
		unix.SYS_READLINK:   {name: "readlink", path: 1},
	}
}
