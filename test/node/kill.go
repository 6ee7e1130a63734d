package node

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// killPatience is how long it may take until processes that were killed are gone.
const killPatience = 30 * time.Second

// killPods ends all that is in pods, and what has become the first process's: the
// shims of containers. Programs that the node's user has started are not among
// them.
func (n *Node) killPods() error {
	group := cgroups(n.dir)
	deadline := time.Now().Add(killPatience)
	for {
		pids, err := group.podProcesses()
		if err != nil {
			return err
		}
		for _, pid := range processes() {
			if parentOf(pid) == 1 && pid != os.Getpid() {
				pids = append(pids, pid)
			}
		}
		if len(pids) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the processes %v of pods do not end", pids)
		}
		for _, pid := range pids {
			_ = unix.Kill(pid, unix.SIGKILL) // gone already
		}
		time.Sleep(10 * time.Millisecond) // a shim that dies has children, which are orphans then
	}
}

func processes() []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var pids []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// parentOf is the fourth field of /proc/PID/stat, zero if there is none.
func parentOf(pid int) int {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:])) // a name may have anything in it
	if len(fields) < 2 || fields[0] == "Z" {
		return 0
	}
	parent, err := strconv.Atoi(fields[1])
	if err != nil {
		return 0
	}
	return parent
}
