package guard

// This file takes arguments out of the sight of other programs. The kubelet
// gives a volume's Secret to flexdriver among its arguments, and each user of the
// node can read those of any process in /proc/PID/cmdline (proc(5)).

import (
	"os"
	"strings"
	"unsafe"
)

// HideArgs returns a copy of args, which are among the arguments of this process, and
// overwrites those that are not the path of a file, where the kernel shows them.
// The length of an argument can still be seen.
//
// On Linux the strings of os.Args are the memory that the kernel filled, and
// shows: runtime.goargs makes them with gostringnocopy (Go 1.26,
// src/runtime/runtime1.go). A string that is not one of them is left alone.
func HideArgs(args []string) []string {
	copies := make([]string, len(args))
	for i, arg := range args {
		copies[i] = strings.Clone(arg)
		if !strings.HasPrefix(arg, "/") && isArgument(arg) {
			overwrite(arg)
		}
	}
	return copies
}

func isArgument(s string) bool {
	for _, arg := range os.Args {
		if len(s) > 0 && len(arg) == len(s) && unsafe.StringData(arg) == unsafe.StringData(s) {
			return true
		}
	}
	return false
}

func overwrite(arg string) {
	memory := unsafe.Slice(unsafe.StringData(arg), len(arg))
	for i := copy(memory, Mask); i < len(memory); i++ {
		memory[i] = ' '
	}
}
