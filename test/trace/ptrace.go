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

// maxString bounds the strings that are read; a path is no longer (PATH_MAX).
const maxString = 4096

// stringAt reads a string in the memory of a stopped process, page by page,
// since what is beyond its end need not be there.
func stringAt(tid int, address uint64) string {
	var text []byte
	for address != 0 && len(text) < maxString {
		buf := make([]byte, min(256, pageSize-int(address%pageSize)))
		local := []unix.Iovec{{Base: &buf[0]}}
		local[0].SetLen(len(buf))
		n, err := unix.ProcessVMReadv(tid, local, []unix.RemoteIovec{{Base: uintptr(address), Len: len(buf)}}, 0)
		if err != nil || n <= 0 {
			break
		}
		part, _, ended := strings.Cut(string(buf[:n]), "\x00")
		text = append(text, part...)
		if ended {
			break
		}
		address += uint64(n)
	}
	return string(text)
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
