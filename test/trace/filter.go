package trace

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Selection says which system calls a [Watcher] is told of: by number, and if there are
// requests, only those with one of them as the second argument, as ioctl(2) has it.
type Selection struct {
	Nr       uint64
	Requests []uint32
}

// Where struct seccomp_data has the number, and the lower half of the second
// argument, on machines that are little-endian, which are all that Kubernetes
// runs on but s390x.
const (
	seccompNr      = 0
	seccompRequest = 24
)

// confine has this thread, and all that it starts, stop before the selected
// system calls. It cannot be undone, and in the thread itself they fail with
// ENOSYS from now on.
func confine(selected []Selection) error {
	program := filterOf(selected)
	if len(program) > 0xffff {
		return fmt.Errorf("%d instructions are too many for a filter", len(program))
	}
	prog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(program)
	if errno != 0 {
		return fmt.Errorf("install a filter of system calls: %w", errno)
	}
	return nil
}

// filterOf does not look at the architecture: what is watched are programs of
// this machine.
func filterOf(selected []Selection) []unix.SockFilter {
	const (
		load   = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		answer = unix.BPF_RET | unix.BPF_K
	)
	program := []unix.SockFilter{{Code: load, K: seccompNr}}
	for _, s := range selected {
		if len(s.Requests) == 0 {
			program = append(program,
				unix.SockFilter{Code: equal, K: uint32(s.Nr), Jf: 1},
				unix.SockFilter{Code: answer, K: unix.SECCOMP_RET_TRACE})
			continue
		}
		program = append(program,
			unix.SockFilter{Code: equal, K: uint32(s.Nr), Jf: uint8(2*len(s.Requests) + 2)},
			unix.SockFilter{Code: load, K: seccompRequest})
		for _, request := range s.Requests {
			program = append(program,
				unix.SockFilter{Code: equal, K: request, Jf: 1},
				unix.SockFilter{Code: answer, K: unix.SECCOMP_RET_TRACE})
		}
		program = append(program, unix.SockFilter{Code: answer, K: unix.SECCOMP_RET_ALLOW})
	}
	return append(program, unix.SockFilter{Code: answer, K: unix.SECCOMP_RET_ALLOW})
}
