package trace

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Class says what a system call does to the world: to anything that outlives
// the process that makes it.
type Class int

// The classes.
const (
	// Private calls concern the process's own memory, threads, signals, time
	// and anonymous files. Killed after one, it leaves what it would have left
	// before it. They also come in another number and order in each run.
	Private Class = iota
	// Looking calls read the world.
	Looking
	// Changing calls change the world, or take or release a part of it that
	// the kernel counts: a lock, a loop device, a detached mount, a child.
	Changing
)

// A kind of system call: its name, and how a call of it is described.
type kind struct {
	name  string
	class Class
	// fd, path and number are the places of the arguments that tell one call
	// from another, counted from 1: a descriptor, a path, a number.
	fd, path, number int
}

// table knows the system calls by number. One that it does not list counts as
// changing, so that a driver that begins to use another is killed after that
// too.
type table map[uint64]kind

func newTable() table {
	t := table{}
	for nr, k := range changingCalls() {
		k.class = Changing
		t[nr] = k
	}
	for nr, k := range lookingCalls() {
		k.class = Looking
		t[nr] = k
	}
	for nr, k := range lookingCallsHere() {
		k.class = Looking
		t[nr] = k
	}
	for _, nr := range append(privateCalls(), privateCallsHere()...) {
		t[nr] = kind{class: Private}
	}
	return t
}

func (t table) of(nr uint64) kind {
	if k, ok := t[nr]; ok {
		return k
	}
	return kind{name: fmt.Sprintf("system call %d", nr), class: Changing}
}

func privateCalls() []uint64 {
	return []uint64{
		unix.SYS_BRK, unix.SYS_MMAP, unix.SYS_MUNMAP, unix.SYS_MPROTECT, unix.SYS_MADVISE, unix.SYS_MREMAP,
		unix.SYS_FUTEX, unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETAFFINITY, unix.SYS_RSEQ, unix.SYS_SET_ROBUST_LIST, unix.SYS_SET_TID_ADDRESS, unix.SYS_EXIT,
		unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK, unix.SYS_TGKILL, unix.SYS_RESTART_SYSCALL,
		unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_CLOCK_GETTIME, unix.SYS_GETTIMEOFDAY, unix.SYS_PPOLL, unix.SYS_SETITIMER,
		unix.SYS_TIMER_CREATE, unix.SYS_TIMER_SETTIME, unix.SYS_TIMER_DELETE,
		unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT, unix.SYS_EVENTFD2, unix.SYS_PIPE2, unix.SYS_MEMFD_CREATE,
		unix.SYS_SOCKET, unix.SYS_ACCEPT4, unix.SYS_GETSOCKOPT, unix.SYS_SETSOCKOPT, unix.SYS_GETSOCKNAME, unix.SYS_GETPEERNAME, unix.SYS_RECVMSG, unix.SYS_RECVFROM, unix.SYS_SHUTDOWN,
		unix.SYS_DUP, unix.SYS_DUP3, unix.SYS_CLOSE_RANGE, unix.SYS_LSEEK, unix.SYS_FADVISE64, unix.SYS_UMASK, unix.SYS_CHDIR,
		unix.SYS_GETPID, unix.SYS_GETPPID, unix.SYS_GETTID, unix.SYS_GETUID, unix.SYS_GETEUID, unix.SYS_GETGID, unix.SYS_GETEGID, unix.SYS_SETPGID,
		unix.SYS_UNAME, unix.SYS_PRCTL, unix.SYS_PRLIMIT64, unix.SYS_GETRANDOM, unix.SYS_CAPGET, unix.SYS_SYSINFO, unix.SYS_PIDFD_OPEN,
	}
}

func lookingCalls() map[uint64]kind {
	return map[uint64]kind{
		unix.SYS_READ:       {name: "read", fd: 1},
		unix.SYS_PREAD64:    {name: "pread", fd: 1},
		unix.SYS_GETDENTS64: {name: "getdents", fd: 1},
		unix.SYS_FSTAT:      {name: "fstat", fd: 1},
		unix.SYS_FSTATFS:    {name: "fstatfs", fd: 1},
		unix.SYS_STATX:      {name: "statx", path: 2},
		unix.SYS_READLINKAT: {name: "readlink", path: 2},
		unix.SYS_FACCESSAT:  {name: "access", path: 2},
		unix.SYS_FACCESSAT2: {name: "access", path: 2},
		unix.SYS_OPENAT2:    {name: "openat2", path: 2},
		unix.SYS_STATFS:     {name: "statfs", path: 1},
		unix.SYS_GETXATTR:   {name: "getxattr", path: 2},
		unix.SYS_FGETXATTR:  {name: "fgetxattr", fd: 1, path: 2},
	}
}

func changingCalls() map[uint64]kind {
	return map[uint64]kind{
		unix.SYS_OPENAT:            {name: "open", path: 2},
		unix.SYS_CLOSE:             {name: "close", fd: 1},
		unix.SYS_WRITE:             {name: "write", fd: 1},
		unix.SYS_WRITEV:            {name: "writev", fd: 1},
		unix.SYS_PWRITE64:          {name: "pwrite", fd: 1, number: 4},
		unix.SYS_SENDTO:            {name: "send", fd: 1},
		unix.SYS_SENDMSG:           {name: "send", fd: 1},
		unix.SYS_CONNECT:           {name: "connect"},
		unix.SYS_BIND:              {name: "bind"},
		unix.SYS_LISTEN:            {name: "listen"},
		unix.SYS_PWRITEV:           {name: "pwritev", fd: 1},
		unix.SYS_IOCTL:             {name: "ioctl", fd: 1, number: 2},
		unix.SYS_FCNTL:             {name: "fcntl", fd: 1, number: 2},
		unix.SYS_FLOCK:             {name: "flock", fd: 1},
		unix.SYS_FTRUNCATE:         {name: "ftruncate", fd: 1, number: 2},
		unix.SYS_FALLOCATE:         {name: "fallocate", fd: 1, number: 3},
		unix.SYS_FSYNC:             {name: "fsync", fd: 1},
		unix.SYS_FDATASYNC:         {name: "fdatasync", fd: 1},
		unix.SYS_FCHOWN:            {name: "fchown", fd: 1},
		unix.SYS_FCHOWNAT:          {name: "chown", path: 2},
		unix.SYS_FCHMOD:            {name: "fchmod", fd: 1},
		unix.SYS_FCHMODAT:          {name: "chmod", path: 2},
		unix.SYS_FCHMODAT2:         {name: "chmod", path: 2},
		unix.SYS_MKDIRAT:           {name: "mkdir", path: 2},
		unix.SYS_MKNODAT:           {name: "mknod", path: 2},
		unix.SYS_UNLINKAT:          {name: "unlink", path: 2},
		unix.SYS_LINKAT:            {name: "link", path: 4},
		unix.SYS_RENAMEAT:          {name: "rename", path: 4},
		unix.SYS_RENAMEAT2:         {name: "rename", path: 4},
		unix.SYS_SETXATTR:          {name: "setxattr", path: 2},
		unix.SYS_FSETXATTR:         {name: "fsetxattr", fd: 1, path: 2},
		unix.SYS_REMOVEXATTR:       {name: "removexattr", path: 2},
		unix.SYS_FREMOVEXATTR:      {name: "fremovexattr", fd: 1, path: 2},
		unix.SYS_MOUNT:             {name: "mount", path: 2},
		unix.SYS_UMOUNT2:           {name: "umount", path: 1},
		unix.SYS_FSOPEN:            {name: "fsopen", path: 1},
		unix.SYS_FSPICK:            {name: "fspick", path: 2},
		unix.SYS_FSCONFIG:          {name: "fsconfig", number: 2, path: 3},
		unix.SYS_FSMOUNT:           {name: "fsmount"},
		unix.SYS_OPEN_TREE:         {name: "open_tree", path: 2},
		unix.SYS_MOUNT_SETATTR:     {name: "mount_setattr", path: 2},
		unix.SYS_MOVE_MOUNT:        {name: "move_mount", path: 4},
		unix.SYS_UNSHARE:           {name: "unshare"},
		unix.SYS_CLONE:             {name: "start a child"},
		unix.SYS_CLONE3:            {name: "start a child"},
		unix.SYS_EXECVE:            {name: "exec", path: 1},
		unix.SYS_WAIT4:             {name: "wait for a child"},
		unix.SYS_WAITID:            {name: "wait for a child"},
		unix.SYS_KILL:              {name: "kill"},
		unix.SYS_PIDFD_SEND_SIGNAL: {name: "kill"},
		unix.SYS_EXIT_GROUP:        {name: "exit"},
	}
}

// refine corrects the class of a call by its arguments. link is what the
// descriptor leads to, path what the path says; each empty if there is none.
func (tr *Tracer) refine(nr uint64, args [6]uint64, link, path string) Class {
	switch nr {
	case unix.SYS_OPENAT:
		const makes = unix.O_CREAT | unix.O_TRUNC
		if args[2]&makes != 0 || args[2]&unix.O_TMPFILE == unix.O_TMPFILE || isHolder(path) {
			return Changing // an open loop device stays attached
		}
		return Looking
	case unix.SYS_CLOSE:
		if isPassing(link) {
			return Private
		}
	case unix.SYS_WRITE, unix.SYS_WRITEV, unix.SYS_SENDTO, unix.SYS_SENDMSG:
		if strings.HasPrefix(link, "socket:") && tr.Sockets {
			return Changing
		}
		if isPassing(link) && !strings.HasPrefix(link, answerLink) {
			return Private
		}
	case unix.SYS_FCNTL:
		if !slices.Contains([]uint64{unix.F_SETLK, unix.F_SETLKW, unix.F_OFD_SETLK, unix.F_OFD_SETLKW}, args[1]) {
			return Private
		}
	case unix.SYS_IOCTL:
		const readsOnly = 2 // _IOC_READ alone, in requests that say so
		if args[1]>>30 == readsOnly || slices.Contains([]uint64{unix.TCGETS, unix.LOOP_GET_STATUS64, unix.BLKSSZGET, unix.BLKROGET}, args[1]) {
			return Looking
		}
	case unix.SYS_CLONE:
		if args[0]&unix.CLONE_THREAD != 0 {
			return Private
		}
	}
	return Changing
}

// isHolder: an open descriptor of it keeps something in being.
func isHolder(path string) bool {
	return strings.HasPrefix(path, "/dev/loop")
}

// isPassing: to close the descriptor has no effect on other processes.
func isPassing(link string) bool {
	for _, prefix := range []string{"/proc/", "/sys/", "/dev/null", "pipe:", "socket:", "/memfd:", "anon_inode:[event", "anon_inode:[pidfd"} {
		if strings.HasPrefix(link, prefix) {
			return true
		}
	}
	return link == ""
}
