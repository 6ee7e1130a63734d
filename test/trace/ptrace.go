package trace

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// processOf returns the process that a thread belongs to.
func processOf(tid int) int {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", tid))
	for line := range strings.Lines(string(status)) {
		var pid int
		if n, _ := fmt.Sscanf(line, "Tgid: %d", &pid); n == 1 {
			return pid
		}
	}
	return tid
}

func programOf(tid int) string {
	cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", tid))
	name, _, _ := strings.Cut(string(cmdline), "\x00")
	return filepath.Base(name)
}

// pageSize is the least that there is.
const pageSize = 4096

// stringAt reads a string in the memory of a stopped process.
func stringAt(tid int, address uint64) string {
	if address == 0 {
		return ""
	}
	buf := make([]byte, 256)
	local := []unix.Iovec{{Base: &buf[0]}}
	// What is beyond the end of the page need not be there.
	pages := []unix.RemoteIovec{{Base: uintptr(address), Len: len(buf)}}
	if rest := pageSize - int(address%pageSize); rest < len(buf) {
		pages = []unix.RemoteIovec{{Base: uintptr(address), Len: rest}, {Base: uintptr(address) + uintptr(rest), Len: len(buf) - rest}}
	}
	local[0].SetLen(len(buf))
	n, _ := unix.ProcessVMReadv(tid, local, pages, 0)
	text, _, _ := strings.Cut(string(buf[:max(n, 0)]), "\x00")
	return text
}

// syscallInfo is struct ptrace_syscall_info of ptrace(2), Linux 5.3.
type syscallInfo struct {
	op     uint8
	_      [3]uint8
	_      uint32
	_, _   uint64
	fields [8]uint64
}

func (s *syscallInfo) read(tid int) error {
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_GET_SYSCALL_INFO, uintptr(tid), unsafe.Sizeof(*s), uintptr(unsafe.Pointer(s)), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

func (s *syscallInfo) nr() uint64      { return s.fields[0] }
func (s *syscallInfo) args() [6]uint64 { return [6]uint64(s.fields[1:7]) }

func (s *syscallInfo) errno() unix.Errno {
	if s.fields[1]&0xff == 0 {
		return 0
	}
	return unix.Errno(-int64(s.fields[0]))
}
