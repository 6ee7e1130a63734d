//go:build linux

package doctor

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/flex2csi/flex2csi/pkg/mounter"
)

// checkMounts looks at what is mounted for volumes: at the table first, which
// hangs never, and then by a process of its own at each of them.
func (p *probe) checkMounts(ctx context.Context, n *notes) {
	table, err := p.nodeTable()
	if err == nil {
		err = p.kubeletDirThere()
	}
	if err != nil {
		n.skip("mounts of volumes", "%v", err)
		return
	}
	volumes := p.volumeMounts(table)
	checkTable(n, volumes)
	points := make([]string, len(volumes))
	for i, m := range volumes {
		points[i] = p.at(m.Mountpoint)
	}
	points = slices.Compact(slices.Sorted(slices.Values(points)))
	answers, err := p.askMounts(ctx, points)
	if err != nil {
		n.skip("whether what is mounted still works", "%v", err)
		return
	}
	n.add(mountsFine, p.kubeletDir(), "%s of volumes below %s asked whether they work", count(len(points), "mount"), p.kubeletDir())
	p.checkStale(n, volumes)
	p.report(n, volumes, answers)
}

// volumeMounts are those below the kubelet's directory that belong to volumes
// of FlexVolume and CSI drivers; what tmpfs and projected volumes are is not
// ours to look at.
func (p *probe) volumeMounts(table []*mounter.Info) (found []*mounter.Info) {
	root := resolvedIn(table, p.kubeletDir())
	for _, m := range table {
		rel, below := strings.CutPrefix(m.Mountpoint, root+"/")
		if below && isVolume(rel) {
			found = append(found, m)
		}
	}
	return found
}

// isVolume takes a path below the kubelet's directory.
func isVolume(rel string) bool {
	for _, pattern := range []string{
		"pods/*/volumes/*~*", "pods/*/flex2csi/*", "pods/*/volume-subpaths/*",
		"plugins/kubernetes.io/flexvolume/*", "plugins/kubernetes.io/csi/*",
	} {
		parts := strings.Split(rel, "/")
		depth := strings.Count(pattern, "/") + 1
		if len(parts) < depth {
			continue
		}
		match, err := filepath.Match(pattern, strings.Join(parts[:depth], "/"))
		if err == nil && match && !builtIn(parts) {
			return true
		}
	}
	return false
}

// builtIn are volumes of the kubelet itself, such as kubernetes.io~empty-dir.
func builtIn(parts []string) bool {
	const plugin = 3
	return parts[0] == "pods" && len(parts) > plugin && parts[2] == "volumes" &&
		strings.HasPrefix(parts[plugin], "kubernetes.io~") && parts[plugin] != "kubernetes.io~csi"
}

// checkTable finds what the mount table alone tells.
func checkTable(n *notes, volumes []*mounter.Info) {
	at := map[string][]*mounter.Info{}
	for _, m := range volumes {
		at[m.Mountpoint] = append(at[m.Mountpoint], m)
		if strings.HasSuffix(m.Root, "//deleted") {
			n.add(mountDeleted, m.Mountpoint, "the directory that is mounted at %s does not exist any more at its source", m.Mountpoint).evidence(owner(m)...)
		}
		if damaged(m) {
			n.add(filesystemReadOnly, m.Mountpoint, "%s is mounted for writing, and its filesystem is read-only now", m.Mountpoint).evidence(owner(m)...)
		}
	}
	for point, mounts := range at {
		if len(mounts) > 1 {
			var facts []string
			for _, m := range mounts {
				facts = append(facts, mounter.Describe(m))
			}
			n.add(mountStacked, point, "%d mounts lie upon each other at %s", len(mounts), point).evidence(facts...)
		}
	}
}

// damaged: a filesystem on a disk goes read-only by itself at an error
// (errors=remount-ro of ext4, shutdown of others), and the mount does not say so.
func damaged(m *mounter.Info) bool {
	has := func(options, option string) bool { return slices.Contains(strings.Split(options, ","), option) }
	switch m.FSType {
	case "ext4", "ext3", "xfs", "btrfs":
		return has(m.Options, "rw") && (has(m.VFSOptions, "ro") || has(m.VFSOptions, "emergency_ro") || has(m.VFSOptions, "shutdown"))
	}
	return false
}

// report makes one finding of all mounts of one dead filesystem.
func (p *probe) report(n *notes, volumes []*mounter.Info, answers map[string]string) {
	type dead struct {
		kind   *Kind
		answer string
		mounts []*mounter.Info
	}
	var order []string
	found := map[string]*dead{}
	for _, m := range volumes {
		answer, answered := answers[p.at(m.Mountpoint)]
		if answered && answer == "" {
			continue
		}
		kind := mountCorrupted
		if !answered {
			kind, answer = mountHangs, "no answer"
		}
		key := fmt.Sprintf("%d:%d %s", m.Major, m.Minor, kind.ID)
		if found[key] == nil {
			found[key] = &dead{kind: kind, answer: answer}
			order = append(order, key)
		}
		found[key].mounts = append(found[key].mounts, m)
	}
	for _, key := range order {
		d := found[key]
		m := d.mounts[len(d.mounts)-1] // the latest: a pod's, rather than the staging path
		e := n.add(d.kind, m.Mountpoint, "what is mounted at %s does not work: %s", m.Mountpoint, d.answer).evidence(owner(m)...)
		for _, other := range d.mounts[:len(d.mounts)-1] {
			e.evidence("also mounted at " + other.Mountpoint)
		}
	}
}
