package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// A loop is a loop device that has a file of the node.
type loop struct{ device, file string }

// loops returns the loop devices of the node with this directory. They cannot be found
// by path: the kernel has the path as seen by the process that made the device, for
// instance in a container. The numbers of the file do; in a layer, it has the device's number
// of the layer, which is a nameless one.
func loops(dir string) ([]loop, error) {
	backed, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil || len(backed) == 0 {
		return nil, err
	}
	own, err := files(dir)
	if err != nil {
		return nil, err
	}
	var found []loop
	for _, b := range backed {
		device := filepath.Join("/dev", strings.Split(b, "/")[3])
		info, err := loopInfo(device)
		if err != nil {
			continue // detached since
		}
		if named := unix.Major(info.Device) != 0; !own[info.Inode] || named && info.Device != deviceOf(dir) {
			continue
		}
		file, err := os.ReadFile(b)
		if err == nil {
			found = append(found, loop{device: device, file: strings.TrimSpace(string(file))})
		}
	}
	slices.SortFunc(found, func(a, b loop) int { return strings.Compare(a.device, b.device) })
	return found, nil
}

func loopInfo(device string) (*unix.LoopInfo64, error) {
	f, err := os.OpenFile(device, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return unix.IoctlLoopGetStatus64(int(f.Fd()))
}

// files are the inodes of all plain files below a directory.
func files(dir string) (map[uint64]bool, error) {
	inodes := map[uint64]bool{}
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // others are at work here
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return nil //nolint:nilerr // gone by now
		}
		inodes[info.Sys().(*syscall.Stat_t).Ino] = true
		return nil
	})
	return inodes, err
}

func deviceOf(path string) uint64 {
	var s unix.Stat_t
	if err := unix.Stat(path, &s); err != nil {
		return 0
	}
	return s.Dev
}

// detachLoops takes the node's files from loop devices.
func detachLoops(dir string) error {
	found, err := loops(dir)
	errs := []error{err}
	for _, l := range found {
		if err := detach(l.device); err != nil && !errors.Is(err, unix.ENXIO) {
			errs = append(errs, fmt.Errorf("detach %s from %s: %w", l.device, l.file, err))
		}
	}
	return errors.Join(errs...)
}

func detach(device string) error {
	f, err := os.OpenFile(device, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0)
}
