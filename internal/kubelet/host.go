package kubelet

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	securejoin "github.com/cyphar/filepath-securejoin"
)

// A Host is a machine as this process sees it. The zero value is this machine without a
// container.
type Host struct {
	// Root is the path of its /: empty, or /host in a container that has the machine's
	// directories there. Root/proc shows all processes of the machine, in any PID
	// namespace.
	Root string
}

// At returns our path of a path of the machine. It does not follow links.
func (h Host) At(path string) string {
	if h.Root == "" {
		return path
	}
	return filepath.Join(h.Root, path)
}

// Shown returns a text for operators on the machine, without Root.
func (h Host) Shown(text string) string {
	if h.Root == "" {
		return text
	}
	return strings.ReplaceAll(text, h.Root+"/", "/")
}

// Resolve is like At, and follows links as the machine does: absolute links begin at
// Root. What does not exist stays as it is.
func (h Host) Resolve(path string) (string, error) {
	return securejoin.SecureJoin(cmp.Or(h.Root, "/"), path)
}

// ProcFile returns the path of a file of a process in /proc.
func (h Host) ProcFile(pid int, name string) string {
	return h.At(filepath.Join("/proc", strconv.Itoa(pid), name))
}

// Processes returns the processes with a name; hyperkube has it as its first argument.
func (h Host) Processes(name string) (found []int) {
	entries, err := os.ReadDir(h.At("/proc"))
	if err != nil {
		return nil
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		args, err := h.CommandLine(pid)
		if err != nil || len(args) == 0 {
			continue
		}
		program := filepath.Base(args[0])
		if program == name || program == "hyperkube" && len(args) > 1 && args[1] == name {
			found = append(found, pid)
		}
	}
	return found
}

// own returns the processes in the PID namespace of the machine. Others are in containers,
// such as the kubelet of a cluster inside of this one.
func (h Host) own(pids []int) (own []int) {
	for _, pid := range pids {
		status, err := os.ReadFile(h.ProcFile(pid, "status"))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(status)) {
			// The process's number in each namespace from that of this /proc on
			// (proc_pid_status(5)).
			if numbers, ok := strings.CutPrefix(line, "NSpid:"); ok && len(strings.Fields(numbers)) == 1 {
				own = append(own, pid)
			}
		}
	}
	return own
}

// CommandLine returns the arguments of a process, its name first. A process that is
// starting or ending has none for a moment: that is an error, not a process without flags.
func (h Host) CommandLine(pid int) ([]string, error) {
	data, err := os.ReadFile(h.ProcFile(pid, "cmdline"))
	if err != nil {
		return nil, fmt.Errorf("read the command line of process %d: %w", pid, err)
	}
	if len(data) == 0 {
		return nil, fmt.Errorf("read the command line of process %d: it is empty: the process begins or ends just now; try again", pid)
	}
	return strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00"), nil
}

// MountNamespace returns the mount namespace of a process.
func (h Host) MountNamespace(pid int) (string, error) {
	return os.Readlink(h.ProcFile(pid, "ns/mnt"))
}

// SameMounts reports whether a process sees our mounts; true if that is not known.
func (h Host) SameMounts(pid int) bool {
	ours, err1 := os.Readlink("/proc/self/ns/mnt")
	theirs, err2 := h.MountNamespace(pid)
	return err1 != nil || err2 != nil || ours == theirs
}

// view returns our path of a process's /. /proc/PID/root has its mounts, but requires the
// right to trace the process. Without that, view assumes the mounts of the host.
func (h Host) view(pid int) string {
	if h.Root == "" && h.SameMounts(pid) {
		return ""
	}
	root := h.ProcFile(pid, "root")
	if _, err := os.Stat(root + "/"); err != nil {
		return h.Root
	}
	return root
}

// started returns when a process was started; zero if not known. The time of its directory
// in /proc is another one.
func (h Host) started(pid int) time.Time {
	const startTime, ticks = 19, 100 // proc_pid_stat(5): the 22nd field; USER_HZ
	stat, err := os.ReadFile(h.ProcFile(pid, "stat"))
	if err != nil {
		return time.Time{}
	}
	_, rest, _ := strings.Cut(string(stat), ") ") // the name may have spaces
	fields := strings.Fields(rest)
	uptime, err := os.ReadFile(h.At("/proc/uptime"))
	if err != nil || len(fields) <= startTime {
		return time.Time{}
	}
	up, err1 := strconv.ParseFloat(strings.Fields(string(uptime))[0], 64)
	start, err2 := strconv.ParseFloat(fields[startTime], 64)
	if err1 != nil || err2 != nil {
		return time.Time{}
	}
	age := time.Duration((up - start/ticks) * float64(time.Second))
	return time.Now().Add(-age)
}
