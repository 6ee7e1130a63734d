package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
)

// Things are what volumes and pods may leave behind on a node: what
// is mounted below the kubelet's directory, loop devices with files of the node,
// and directories of pods. Each is one line for people.
type Things []string

// Look sees which there are. It has to be called inside of a node.
func Look() (Things, error) {
	var all Things
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(KubeletDir))
	if err != nil {
		return nil, err
	}
	for _, m := range mounts {
		if m.Mountpoint != KubeletDir {
			all = append(all, fmt.Sprintf("a mount of %s (%s) on %s", m.Source, m.FSType, m.Mountpoint))
		}
	}
	attached, err := loops(os.Getenv(envDir))
	if err != nil {
		return nil, err
	}
	for _, l := range attached {
		all = append(all, fmt.Sprintf("a loop device %s with %s", l.device, l.file))
	}
	pods, err := os.ReadDir(filepath.Join(KubeletDir, "pods"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, p := range pods {
		all = append(all, "a pod's directory "+filepath.Join(KubeletDir, "pods", p.Name()))
	}
	return all, nil
}

// Since are those that were not there before.
func (t Things) Since(before Things) Things {
	return slices.DeleteFunc(slices.Clone(t), func(s string) bool { return slices.Contains(before, s) })
}

// Without are those that have nothing to do with any of these: the UIDs of pods
// that still run, for instance.
func (t Things) Without(words ...string) Things {
	return slices.DeleteFunc(slices.Clone(t), func(s string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(s, w) })
	})
}

// Leaks are the things that were not there when the node had started.
func (n *Node) Leaks() (Things, error) {
	now, err := Look()
	return now.Since(n.before), err
}
