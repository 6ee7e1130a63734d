package node

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	cgroupRoot = "/sys/fs/cgroup"
	// All else that runs in the node is in this group; pods have their own. With
	// version 2 a group has either processes or groups.
	systemGroup = "system"
)

// cgroups is the name of a node's control group, in each hierarchy that this
// machine has: the only thing of a node, besides loop devices, that no namespace
// takes away at its end.
func cgroups(dir string) cgroup {
	h := fnv.New32a()
	h.Write([]byte(dir))
	return cgroup(fmt.Sprintf("flex2csi-node-%08x", h.Sum32()))
}

type cgroup string

// hierarchies are the roots of all that are mounted: one with version 2, one for
// each controller with version 1.
func hierarchies() ([]string, error) {
	if _, err := os.Stat(filepath.Join(cgroupRoot, "cgroup.procs")); err == nil {
		return []string{cgroupRoot}, nil
	}
	procs, err := filepath.Glob(filepath.Join(cgroupRoot, "*", "cgroup.procs"))
	if err == nil && len(procs) == 0 {
		err = fmt.Errorf("no control groups are mounted below %s", cgroupRoot)
	}
	var dirs []string
	for _, p := range procs {
		dir := filepath.Dir(p)
		if info, err := os.Lstat(dir); err == nil && info.IsDir() { // cpu,cpuacct has two more names
			dirs = append(dirs, dir)
		}
	}
	return dirs, err
}

// make makes the node's groups. Those of a node of the same directory that has
// been killed are removed first.
func (c cgroup) make() error {
	if err := c.remove(); err != nil {
		return err
	}
	roots, err := hierarchies()
	if err != nil {
		return err
	}
	for _, root := range roots {
		if err := makeGroup(root, string(c)); err != nil {
			return err
		}
		if err := makeGroup(filepath.Join(root, string(c)), systemGroup); err != nil {
			return err
		}
	}
	return nil
}

// makeGroup makes a group that can hold processes, and in which the kubelet can
// make more.
func makeGroup(parent, name string) error {
	controllers, err := os.ReadFile(filepath.Join(parent, "cgroup.controllers"))
	if err == nil { // version 2
		for c := range strings.FieldsSeq(string(controllers)) {
			// Some cannot be enabled everywhere. The kubelet names those that it misses.
			_ = os.WriteFile(filepath.Join(parent, "cgroup.subtree_control"), []byte("+"+c), 0)
		}
	}
	dir := filepath.Join(parent, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return fmt.Errorf("make a control group: %w", err)
	}
	if controllers != nil {
		return nil
	}
	// A new group of cpuset has neither processors nor memory, and takes no process.
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(parent, file))
		if errors.Is(err, fs.ErrNotExist) {
			continue // not the hierarchy of cpuset
		}
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, file), value, 0); err != nil {
			return err
		}
	}
	return nil
}

// join puts this process into the group of the node's programs.
func (c cgroup) join() error {
	roots, err := hierarchies()
	if err != nil {
		return err
	}
	for _, root := range roots {
		// Zero is the process that writes. Its PID here is another one in the namespace
		// of the mount.
		procs := filepath.Join(root, string(c), systemGroup, "cgroup.procs")
		if err := os.WriteFile(procs, []byte(strconv.Itoa(0)), 0); err != nil {
			return fmt.Errorf("join the node's control group: %w", err)
		}
	}
	return nil
}

// removePatience is how long a group may be busy after its last process is gone.
const removePatience = 10 * time.Second

// remove removes the node's groups with all that are in them. No process may be
// left.
func (c cgroup) remove() error {
	dirs, err := c.list()
	if err != nil {
		return err
	}
	return removeGroups(dirs)
}

// removeGroups removes groups, of which outer ones come first.
func removeGroups(dirs []string) error {
	for _, dir := range slices.Backward(dirs) {
		if err := removeGroup(dir); err != nil {
			return err
		}
	}
	return nil
}

func removeGroup(dir string) error {
	err := os.Remove(dir)
	for deadline := time.Now().Add(removePatience); errors.Is(err, unix.EBUSY) && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
		err = os.Remove(dir)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the node's control group: %w", err)
	}
	return nil
}

// pods has the directories of all groups but those of the node's programs.
func (c cgroup) pods() ([]string, error) {
	dirs, err := c.list()
	return slices.DeleteFunc(dirs, func(dir string) bool {
		return filepath.Base(dir) == string(c) || filepath.Base(dir) == systemGroup && filepath.Base(filepath.Dir(dir)) == string(c)
	}), err
}

// podProcesses are those in the groups of pods. None of them is frozen any more:
// runc may have been killed while it held them, and they would not die then.
func (c cgroup) podProcesses() ([]int, error) {
	dirs, err := c.pods()
	if err != nil {
		return nil, err
	}
	found := map[int]bool{}
	for _, dir := range dirs {
		for file, thawed := range map[string]string{"freezer.state": "THAWED", "cgroup.freeze": "0"} { // version 1, version 2
			if path := filepath.Join(dir, file); exists(path) {
				_ = os.WriteFile(path, []byte(thawed), 0) // gone since
			}
		}
		procs, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			continue // gone since
		}
		for line := range strings.FieldsSeq(string(procs)) {
			if pid, err := strconv.Atoi(line); err == nil && pid > 0 {
				found[pid] = true
			}
		}
	}
	return slices.Collect(maps.Keys(found)), nil
}

// removePods removes all groups but those of the node's programs.
func (c cgroup) removePods() error {
	dirs, err := c.pods()
	if err != nil {
		return err
	}
	return removeGroups(dirs)
}

// list has the directories of all the node's groups, outer ones first.
func (c cgroup) list() ([]string, error) {
	roots, err := hierarchies()
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, root := range roots {
		err := filepath.WalkDir(filepath.Join(root, string(c)), func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // none, or gone by now
			}
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return dirs, nil
}
