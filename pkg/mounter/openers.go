package mounter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// scanLimit is how long /proc may take. No filesystem that could be silent is asked, but
// the check must not hang where that is wrong.
const scanLimit = 10 * time.Second

// awaitUnused refuses devices that a process has open, or with a node that is mounted
// somewhere. Programs of udev and other calls of ours have a device open for a moment.
func (f family) awaitUnused(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, scanLimit)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		late := time.Now().Add(busyWait)
		err := f.scan(most, podOf)
		for errors.Is(err, errOpen) && time.Now().Before(late) && ctx.Err() == nil {
			time.Sleep(busyWait / 20)
			err = f.scan(most, podOf)
		}
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return because(ErrBusy, "cannot tell which processes use it: /proc does not answer (%v)", context.Cause(ctx))
	}
}

// most is how many open files of a pod are looked at before its confined processes are
// passed over: it may have any number of files and processes, and each takes some 10 µs,
// so those of 110 pods take half of scanLimit.
const most = 5_000

// errOpen: a process has the device open.
var errOpen = because(ErrBusy, "open")

// A scan goes through the processes that /proc shows.
type scan struct {
	family
	namespaces map[string]bool // mount namespaces that were looked at
	types      map[int]string  // filesystem types by mount ID
	limit      int
	podOf      func(pid string) string
	files      map[string]int // how many open files of each pod were looked at
}

func (f family) scan(limit int, podOf func(pid string) string) error {
	s := scan{family: f, namespaces: map[string]bool{}, types: map[int]string{}, limit: limit, podOf: podOf, files: map[string]int{}}
	for _, look := range []func(pid string) error{s.mounts, s.descriptors} {
		entries, err := os.ReadDir("/proc")
		if err != nil {
			return err
		}
		for _, e := range entries {
			if c := e.Name()[0]; c < '0' || c > '9' {
				continue
			}
			switch err := look(e.Name()); {
			case err == nil, hasEnded(err), isHiddenInit(e.Name(), err):
			case errors.Is(err, ErrBusy):
				return err
			default:
				return fmt.Errorf("cannot tell whether process %s uses it: %w", e.Name(), err)
			}
		}
	}
	return nil
}

// hasEnded: EINVAL is what the mount table of a process says that is ending
// (fs/proc_namespace.c, mounts_open_common).
func hasEnded(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL)
}

// isHiddenInit: a sandbox or a security module may hide the first process from root. It
// opens no volumes. Where others are hidden, too, nothing is known.
func isHiddenInit(pid string, err error) bool {
	return pid == "1" && errors.Is(err, fs.ErrPermission)
}

// mounts refuses nodes of the family that are bind-mounted in the process's namespace: a
// container gets a volume with volumeMode: Block so.
func (s *scan) mounts(pid string) error {
	namespace, err := os.Readlink("/proc/" + pid + "/ns/mnt")
	if err != nil || s.namespaces[namespace] {
		return err
	}
	infos, err := MountsIn("/proc/"+pid+"/mountinfo", nil)
	if err != nil {
		return err
	}
	s.namespaces[namespace] = true
	own, _ := os.Readlink("/proc/thread-self/ns/mnt")
	for _, i := range infos {
		s.types[i.ID] = i.FSType
		if s.isNode(i) || namespace == own && i.FSType == "tmpfs" && i.Root != "/" && s.has(i.Mountpoint) {
			return because(ErrBusy, "its node is mounted at %s (mount namespace of pid %s): a container uses it; name another device", i.Mountpoint, pid)
		}
	}
	return nil
}

// isNode reports whether a mount is that of a node. There is one devtmpfs, with the
// kernel's names, however often it is mounted.
func (s *scan) isNode(i *Info) bool {
	if i.FSType != "devtmpfs" || i.Root == "/" {
		return false
	}
	for _, name := range s.family {
		if "/dev"+strings.TrimSuffix(i.Root, "//deleted") == name {
			return true
		}
	}
	return false
}

// descriptors refuses what a process has open.
func (s *scan) descriptors(pid string) error {
	if pid == strconv.Itoa(os.Getpid()) {
		return nil
	}
	dir, err := os.Open("/proc/" + pid + "/fd")
	if err != nil {
		return err
	}
	defer dir.Close()
	pod := s.podOf(pid)
	for pod == "" || s.files[pod] < s.limit || !isConfined(pid) {
		names, err := dir.Readdirnames(1000)
		for _, fd := range names {
			open, err := s.isOpen(dir, fd)
			if err != nil && !hasEnded(err) {
				return err
			}
			if open {
				comm, _ := os.ReadFile("/proc/" + pid + "/comm")
				return because(errOpen, "%s (pid %s) has it open; end that, or name another device", bytes.TrimSpace(comm), pid)
			}
		}
		s.files[pod] += len(names)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// podOf returns what the kubelet's cgroup of a process's pod is named, or "" outside of pods.
func podOf(pid string) string {
	cgroups, _ := os.ReadFile("/proc/" + pid + "/cgroup")
	return podIn(string(cgroups))
}

// podIn: …/kubepods/burstable/podUID/…, or …/kubepods-burstable-podUID.slice/… of systemd.
func podIn(cgroups string) string {
	_, below, isPod := strings.Cut(cgroups, "kubepods")
	if !isPod {
		return ""
	}
	below, _, _ = strings.Cut(below, "\n")
	for part := range strings.SplitSeq(below, "/") {
		if _, uid, found := strings.Cut("-"+part, "-pod"); found {
			return uid
		}
	}
	return "" // the kubelet puts no process there
}

// isConfined reports whether a process of a pod is expected to open no disk: its container
// is not privileged, or in a user namespace of its own. What it gets as a volume is found as
// a mount. What a device plugin gives it is not, nor what it opened before it was confined.
func isConfined(pid string) bool {
	own, errOwn := os.Readlink("/proc/self/ns/user")
	users, err := os.Readlink("/proc/" + pid + "/ns/user")
	if errOwn == nil && err == nil && own != users {
		return true
	}
	status, _ := os.ReadFile("/proc/" + pid + "/status")
	_, bounds, _ := strings.Cut(string(status), "\nCapBnd:\t")
	bounds, _, _ = strings.Cut(bounds, "\n")
	mask, err := strconv.ParseUint(bounds, 16, 64)
	return err == nil && mask&(1<<unix.CAP_SYS_ADMIN) == 0
}

func (s *scan) isOpen(dir *os.File, fd string) (bool, error) {
	var first [1]byte
	_, err := unix.Readlinkat(int(dir.Fd()), fd, first[:])
	if errors.Is(err, unix.ENAMETOOLONG) { // than a page: one of a file
		first[0], err = '/', nil
	}
	if err != nil || first[0] != '/' { // a socket, a pipe, …
		return false, err
	}
	info, err := os.ReadFile(filepath.Dir(dir.Name()) + "/fdinfo/" + fd)
	if err != nil {
		return false, err
	}
	mount, onlyPath := parseFDInfo(string(info))
	if onlyPath || isRemote(s.types[mount]) {
		return false, nil
	}
	var st unix.Statx_t
	err = unix.Statx(int(dir.Fd()), fd, unix.AT_STATX_DONT_SYNC|unix.AT_NO_AUTOMOUNT, unix.STATX_TYPE, &st)
	number := unix.Mkdev(st.Rdev_major, st.Rdev_minor)
	return err == nil && st.Mode&unix.S_IFMT == unix.S_IFBLK && s.family[number] != "", err
}

// parseFDInfo returns the ID of the mount that a file was opened on, and whether the
// device behind it was not (O_PATH).
func parseFDInfo(text string) (mount int, onlyPath bool) {
	for line := range strings.SplitSeq(text, "\n") {
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch key {
		case "mnt_id":
			mount, _ = strconv.Atoi(value)
		case "flags":
			flags, _ := strconv.ParseInt(value, 8, 64)
			onlyPath = flags&unix.O_PATH != 0
		}
	}
	return mount, onlyPath
}

// isRemote: to ask a filesystem of a server that is silent would hang.
func isRemote(fsType string) bool {
	kind, _, _ := strings.Cut(fsType, ".")
	switch kind {
	case "nfs", "nfs4", "cifs", "smb3", "ceph", "fuse", "fuseblk", "9p", "virtiofs", "lustre", "afs", "gfs2", "ocfs2", "autofs", "orangefs", "beegfs", "gpfs":
		return true
	}
	return false
}
