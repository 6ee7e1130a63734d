package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// A seen is what the kernel says is mounted at a directory.
type seen struct {
	dir, device, image, fsType, access string
	count                              int // of mounts there, one on the other
}

// String is for what should not be so.
func (s seen) String() string {
	if s.count == 0 {
		return "nothing"
	}
	return fmt.Sprintf("%s (%s, %s) at %s, %d times", s.device, s.fsType, s.access, s.dir, s.count)
}

// mounts returns what is mounted below dir, from mountinfo.
func (n *node) mounts(dir string) ([]seen, error) {
	infos, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		return nil, err
	}
	var all []seen
	for _, i := range infos {
		access, _, _ := strings.Cut(i.Options, ",")
		s := seen{dir: i.Mountpoint, device: i.Source, fsType: i.FSType, access: access, count: 1}
		if name, ok := strings.CutPrefix(i.Source, "/dev/loop"); ok {
			backing, _ := os.ReadFile("/sys/block/loop" + name + "/loop/backing_file") // shown as missing
			s.image = n.short(strings.TrimSpace(string(backing)))
		}
		if last := len(all) - 1; last >= 0 && all[last].dir == s.dir {
			s.count += all[last].count
			all = all[:last]
		}
		all = append(all, s)
	}
	return all, nil
}

// at returns what is mounted at dir itself.
func (n *node) at(dir string) (seen, error) {
	all, err := n.mounts(dir)
	for _, s := range all {
		if s.dir == dir {
			return s, err
		}
	}
	return seen{}, err
}

// loops returns the loop devices that have an image of ours.
func (n *node) loops() (devices []string) {
	files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, f := range files {
		if backing, err := os.ReadFile(f); err == nil && strings.HasPrefix(string(backing), n.dir+"/") {
			devices = append(devices, "/dev/"+strings.Split(f, "/")[3])
		}
	}
	return devices
}

// noLoops waits a little: the kernel detaches a loop device some time after
// its last user has gone.
func (n *node) noLoops() error {
	var left []string
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if left = n.loops(); len(left) == 0 {
			return nil
		}
	}
	return fmt.Errorf("still attached: %s", strings.Join(left, ", "))
}

// files returns all that lies below dir and is no directory.
func files(dir string) (names []string, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, strings.TrimPrefix(path, dir+"/"))
		}
		return err
	})
	return names, err
}

// taken is how long a file is, and how much of the disk it takes.
func taken(path string) (length, blocks int64, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, 0, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, fmt.Errorf("stat %s: no blocks", path)
	}
	return info.Size(), st.Blocks * 512, nil
}

// room is the size of the filesystem at dir.
func room(dir string) (int64, error) {
	var st unix.Statfs_t
	err := unix.Statfs(dir, &st)
	return int64(st.Blocks) * st.Bsize, err
}

func mib(bytes int64) string {
	if m := float64(bytes) / (1 << 20); m < 10 {
		return fmt.Sprintf("%.1f MiB", m)
	}
	return fmt.Sprintf("%d MiB", bytes>>20)
}

// mayGrowMounted reports whether this process has the capability that ext4
// wants for growing while it is mounted (fs/ext4/resize.c, ext4_resize_begin).
func mayGrowMounted() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	return unix.Capget(&header, &data[0]) == nil && data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0
}

// childOf returns the name of a program that a process has started, if any.
func childOf(pid int) string {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		children, _ := os.ReadFile(list)
		for child := range strings.FieldsSeq(string(children)) {
			if comm, err := os.ReadFile("/proc/" + child + "/comm"); err == nil {
				return strings.TrimSpace(string(comm))
			}
		}
	}
	return ""
}
