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

// A Host is a machine as it is seen from here. The zero value is this machine,
// seen from itself.
type Host struct {
	// Root is where its / is: empty, or /host in a container that has the
	// machine's directories there. Its /proc is below it, too, and shows all
	// processes of the machine, whatever process namespace this is.
	Root string
}

// At is where a path of the machine's is found here. Links are not followed.
func (h Host) At(path string) string {
	if h.Root == "" {
		return path
	}
	return filepath.Join(h.Root, path)
}

// Shown is a text as people on the machine have to read it, who know nothing of
// Root.
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

// ProcFile is a file of a process in /proc.
func (h Host) ProcFile(pid int, name string) string {
	return h.At(filepath.Join("/proc", strconv.Itoa(pid), name))
}

// Processes are those of a name; hyperkube has it as its first argument.
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

// own are those processes that live in the process namespace of the machine, and
// not in one of a container, as a kubelet of a cluster inside of this one does.
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

// CommandLine are the arguments of a process, its name first. One that has just
// been started has none for a moment, and one that is ending has none any more:
// that is an error, and not a process without flags.
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

// MountNamespace names the mount namespace of a process.
func (h Host) MountNamespace(pid int) (string, error) {
	return os.Readlink(h.ProcFile(pid, "ns/mnt"))
}

// SameMounts tells whether a process sees the mounts that we see; if that cannot
// be told it is taken for granted.
func (h Host) SameMounts(pid int) bool {
	ours, err1 := os.Readlink("/proc/self/ns/mnt")
	theirs, err2 := h.MountNamespace(pid)
	return err1 != nil || err2 != nil || ours == theirs
}

// view is where the files that a process sees are found here. Below its own root
// they are what it sees, whatever mounts it has; to go there takes the right to
// trace it. Without that it is taken for granted that it sees those of the host.
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

// started is when a process was started; zero if that cannot be told. Its
// directory in /proc does not tell.
func (h Host) started(pid int) time.Time {
	const startTime, ticks = 19, 100 // proc_pid_stat(5): the 22nd field; USER_HZ
	stat, err := os.ReadFile(h.ProcFile(pid, "stat"))
	if err != nil {
		return time.Time{}
	}
	_, rest, _ := strings.Cut(string(stat), ") ") // the name may have spaces in it
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
