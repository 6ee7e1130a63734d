package kubelet

import (
	"bufio"
	"os"
	"strconv"
	"strings"

	"github.com/flex2csi/flex2csi/internal/distribution"
)

// Seen says whether a process watches a directory.
type Seen int

// The values of Seen. NotToBeTold: its descriptors may not be read, or its filesystem
// has another device number there (btrfs, overlayfs).
const (
	NotToBeTold Seen = iota
	Watched
	NotWatched
)

type watch struct {
	inode        uint64
	major, minor uint32
}

// inotify returns the files and directories that a process watches.
func (h Host) inotify(pid int) (map[watch]bool, error) {
	dir := h.ProcFile(pid, "fdinfo")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	found := map[watch]bool{}
	for _, e := range entries {
		f, err := os.Open(dir + "/" + e.Name())
		if err != nil {
			continue // closed meanwhile, or not permitted: then for all
		}
		lines := bufio.NewScanner(f)
		for lines.Scan() {
			if w, ok := parseWatch(lines.Text()); ok {
				found[w] = true
			}
		}
		f.Close()
	}
	return found, nil
}

// parseWatch parses a line of proc_pid_fdinfo(5). It has the kernel's encoding of the
// device, not that of stat(2):
//
//	inotify wd:2 ino:7ef82a sdev:800001 mask:800afff ignored_mask:0 …
func parseWatch(line string) (w watch, ok bool) {
	const minorBits = 20
	if !strings.HasPrefix(line, "inotify ") {
		return watch{}, false
	}
	var device uint64
	var err1, err2 error
	for field := range strings.FieldsSeq(line) {
		if text, found := strings.CutPrefix(field, "ino:"); found {
			w.inode, err1 = strconv.ParseUint(text, 16, 64)
		}
		if text, found := strings.CutPrefix(field, "sdev:"); found {
			device, err2 = strconv.ParseUint(text, 16, 32)
		}
	}
	w.major, w.minor = uint32(device>>minorBits), uint32(device&(1<<minorBits-1))
	return w, err1 == nil && err2 == nil && w.inode != 0
}

// hosts are programs that contain a kubelet, with their own configuration.
func hosts() []string {
	return []string{
		"k3s",      // which also hides its arguments
		"kubelite", // MicroK8s
	}
}

// embedded finds a kubelet inside another program, and its plugin directory by the watch.
func (q Query) embedded() (Dir, bool) {
	for _, program := range hosts() {
		for _, pid := range q.Host.Processes(program) {
			for _, path := range q.candidates() {
				if here, err := q.Host.Resolve(path); err == nil && q.Host.Watches(pid, here) == Watched {
					return Dir{Path: path, From: "what " + program + " (process " + strconv.Itoa(pid) + ") watches"}, true
				}
			}
		}
	}
	return Dir{}, false
}

func (q Query) candidates() []string {
	if q.Distribution != nil {
		return append([]string{q.Distribution.PluginDir}, distribution.PluginDirs()...)
	}
	return distribution.PluginDirs()
}
