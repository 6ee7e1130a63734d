package mounter_test

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/test/testenv"
)

// envOldKernel makes this test binary forget system calls when it starts.
const envOldKernel = "MOUNTER_TEST_OLD_KERNEL"

// newCalls are those that Linux got after 4.18, the oldest kernel of a
// distribution that is still looked after, as far as the package uses them.
func newCalls() []uint32 {
	return []uint32{
		unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, // 5.2
		unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT, // 5.2
		unix.SYS_OPENAT2,       // 5.6
		unix.SYS_CLOSE_RANGE,   // 5.9
		unix.SYS_MOUNT_SETATTR, // 5.12
	}
}

// forgetNewCalls has the kernel answer ENOSYS to them, for this process and
// all that it starts; LOOP_CONFIGURE (5.8) is an unknown ioctl.
func forgetNewCalls() {
	const nr, argument1 = 0, 24 // struct seccomp_data
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	fail := func(errno unix.Errno) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)}
	}
	unless := func(how uint16, value uint32, skip uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | how | unix.BPF_K, K: value, Jf: skip}
	}
	filter := []unix.SockFilter{load(nr)}
	for _, call := range newCalls() {
		filter = append(filter, unless(unix.BPF_JEQ, call, 1), fail(unix.ENOSYS))
	}
	filter = append(filter,
		unless(unix.BPF_JEQ, unix.SYS_IOCTL, 4), load(argument1), unless(unix.BPF_JEQ, unix.LOOP_CONFIGURE, 1), fail(unix.EINVAL), load(nr),
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW})
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		panic(err)
	}
	const allThreads = 1 // SECCOMP_FILTER_FLAG_TSYNC
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, allThreads, uintptr(unsafe.Pointer(&program)))
	runtime.KeepAlive(filter)
	if errno != 0 {
		panic(errno)
	}
}

// The tests of what has another way on old kernels, as on such a kernel.
func TestOldKernel(t *testing.T) {
	testenv.Need(t, "mount")
	if os.Getenv(envOldKernel) != "" {
		t.Skip("is the old kernel")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, "-test.v", "-test.run=^("+strings.Join([]string{
		"TestBind", "TestBindKeepsFlagsOfSource", "TestBindRefuses", "TestTargetUnfit", "TestOccupiedTarget",
		"TestMakeReadOnly", "TestMemory", "TestMemoryResize", "TestOpenTarget", "TestTargetInfo.*", "TestUnmount", "TestUnmountDeadFUSE",
		"TestSetGroup.*", "TestDiskShared", "TestDiskReadOnlyThenReadWrite", "TestDiskOptions",
		"TestChildIsClosed", "TestOpenImage.*", "TestImageGrow", "TestLoopDetachesItself", "TestLoopReadOnlyImage", "TestLoopConcurrently",
	}, "|")+")$", "-test.skip=/^(classic|btrfs|xfs)$|//^classic$")
	cmd.Env = append(os.Environ(), envOldKernel+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if n := strings.Count(string(out), "--- PASS"); n < 10 {
		t.Errorf("only %d tests ran:\n%s", n, out)
	}
}
