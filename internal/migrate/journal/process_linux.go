package journal

// This file has IDs of processes, and reports whether the process of an ID is dead.

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ProcessID returns a unique name of this process: the boot ID, the pid namespace, the pid and
// the start time.
func ProcessID() (string, error) {
	where, err := here()
	if err != nil {
		return "", err
	}
	pid := os.Getpid()
	_, started, err := stat(pid)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s %d %s", where, pid, started), nil
}

// ProcessDead reports whether the process of an ID is certainly dead. It returns false for a
// process of another machine or container.
func ProcessDead(id string) bool {
	fields := strings.Fields(id)
	if len(fields) != 4 {
		return false
	}
	where, err := here()
	if err != nil || where != fields[0]+" "+fields[1] {
		return false
	}
	pid, err := strconv.Atoi(fields[2])
	if err != nil || pid <= 0 {
		return false
	}
	// /proc may hide the processes of others (hidepid), kill does not.
	if err := unix.Kill(pid, 0); err != nil {
		return errors.Is(err, unix.ESRCH)
	}
	state, started, err := stat(pid)
	return err == nil && (started != fields[3] || state == "Z" || state == "X")
}

// here names the scope of pids.
func here() (string, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	namespace, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return "", err
	}
	return string(bytes.TrimSpace(boot)) + " " + namespace, nil
}

// stat returns the state and the start time of a process, in ticks since boot
// (proc_pid_stat(5)).
func stat(pid int) (state, started string, err error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", "", err
	}
	// The name may have spaces and brackets.
	const fromState, fromStarted = 0, 19
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	if len(fields) <= fromStarted {
		return "", "", fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	return fields[fromState], fields[fromStarted], nil
}
