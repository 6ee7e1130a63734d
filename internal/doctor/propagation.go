//go:build linux

package doctor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/bridgestatus"
	"github.com/flex2csi/flex2csi/internal/csiclient"
	"github.com/flex2csi/flex2csi/pkg/mounter"
)

// checkPropagation checks mountPropagation: Bidirectional. The node sees a mount that a
// container makes below the kubelet's directory if the mount of this directory is in the
// same peer group in both (mount_namespaces(7)).
func (p *probe) checkPropagation(ctx context.Context, n *notes) {
	dir := p.kubeletDir()
	table, err := p.nodeTable()
	if err == nil {
		err = p.kubeletDirThere()
	}
	if err != nil {
		n.skip("mount propagation", "%v", err)
		return
	}
	p.checkShared(ctx, n, table, dir)
	root := resolvedIn(table, dir)
	if pods := resolvedIn(table, filepath.Join(root, "pods")); !strings.HasPrefix(pods, root+"/") {
		p.checkShared(ctx, n, table, pods) // a link: containers need this directory, too
	}
	if s, err := p.status(); err == nil && s.absent == nil {
		checkVisible(n, s.BridgeStatus, table)
	}
}

// checkShared checks one directory below which there are volumes.
func (p *probe) checkShared(ctx context.Context, n *notes, table []*mounter.Info, dir string) {
	covering := cover(table, dir)
	if covering == nil {
		n.skip("mount propagation", "there is no mount that %s is on", dir)
		return
	}
	group := peerGroup(covering)
	if group == "" {
		n.add(kubeletDirPrivate, dir, "the mount that the kubelet's directory %s is on is not shared", dir).evidence(describe(covering))
	}
	looked := []string{"the node: " + describe(covering)}
	if s, err := p.status(); err == nil && s.pid != 0 {
		looked = append(looked, "the daemon: "+p.compare(n, daemonPropagation, "the daemon", s.pid, dir, group))
	}
	for driver, socket := range p.csiSockets(ctx) {
		if pid := listener(ctx, p.at(socket)); pid != 0 {
			looked = append(looked, driver+": "+p.compare(n, csiPropagation, "CSI driver "+driver, pid, dir, group))
		}
	}
	if group != "" {
		n.add(propagationFine, dir, "mounts below %s are shared with containers", dir).evidence(looked...)
	}
}

// kubeletDirThere reports whether the kubelet's directory exists: without it this machine is no node.
func (p *probe) kubeletDirThere() error {
	if _, err := os.Lstat(p.at(p.kubeletDir())); err != nil {
		return fmt.Errorf("the kubelet's directory is not here (%w); --kubelet-dir names another one", err)
	}
	return nil
}

// nodeTable returns the kubelet's mount table, or else our own. Mounts behind a link in the
// place of pods have the paths that the kubelet uses.
func (p *probe) nodeTable() (table []*mounter.Info, err error) {
	if k, errKubelet := p.kubelet(); errKubelet == nil {
		table, err = mounter.MountsIn(p.host().ProcFile(k.PID, "mountinfo"), nil)
	} else {
		table, err = mounter.Mounts(nil)
	}
	root := resolvedIn(table, p.kubeletDir())
	pods := filepath.Join(root, "pods")
	to, errLink := os.Readlink(p.at(pods))
	if errLink != nil {
		return table, err
	}
	if !filepath.IsAbs(to) {
		to = filepath.Join(root, to)
	}
	for _, m := range table {
		if rel, ok := strings.CutPrefix(m.Mountpoint, to+"/"); ok {
			m.Mountpoint = filepath.Join(pods, rel)
		}
	}
	return table, err
}

// cover returns the mount that a path is on: the deepest at the path or above, and of
// those the last.
func cover(table []*mounter.Info, path string) (found *mounter.Info) {
	path = resolvedIn(table, path)
	for _, m := range table {
		if m.Mountpoint == path || m.Mountpoint == "/" || strings.HasPrefix(path, m.Mountpoint+"/") {
			if found == nil || len(m.Mountpoint) >= len(found.Mountpoint) {
				found = m
			}
		}
	}
	return found
}

// resolvedIn follows links, unless the path is a mount point, which must not be touched.
func resolvedIn(table []*mounter.Info, path string) string {
	for _, m := range table {
		if m.Mountpoint == path {
			return path
		}
	}
	return resolved(path)
}

// peerGroup returns the number of a mount's peer group, which is unique on the machine.
func peerGroup(m *mounter.Info) string {
	for field := range strings.FieldsSeq(m.Optional) {
		if group, ok := strings.CutPrefix(field, "shared:"); ok {
			return group
		}
	}
	return ""
}

func describe(m *mounter.Info) string {
	kind := m.Optional
	if kind == "" {
		kind = "private"
	}
	return mounter.Describe(m) + ", " + kind
}

// compare describes how a process sees the kubelet's directory.
func (p *probe) compare(n *notes, kind *Kind, who string, pid int, dir, group string) string {
	node := 0
	if k, err := p.kubelet(); err == nil {
		node = k.PID
	}
	if p.sameNamespace(pid, node) {
		return "in the node's own mount namespace"
	}
	table, err := mounter.MountsOf(pid, nil)
	if err != nil {
		return "not known: " + err.Error()
	}
	m := cover(table, dir)
	if m == nil || group != "" && peerGroup(m) != group {
		what := "does not have the directory"
		if m != nil {
			what = "has it on " + describe(m)
		}
		n.add(kind, dir, "what %s (process %d) mounts below %s is not seen by the node", who, pid, dir).
			evidence("the process "+what, "the node's peer group is "+group)
		return "not shared"
	}
	return "shared (group " + group + ")"
}

// sameNamespace compares the mount namespaces of two processes; process 0 is this one.
func (p *probe) sameNamespace(a, b int) bool {
	if b == 0 {
		return ourselves().SameMounts(a)
	}
	one, err1 := ourselves().MountNamespace(a)
	other, err2 := p.host().MountNamespace(b)
	return err1 == nil && err2 == nil && one == other
}

// csiSockets returns the sockets of the CSI drivers that the daemon uses, by name.
func (p *probe) csiSockets(ctx context.Context) map[string]string {
	served, _ := p.served()
	ours := map[string]bool{}
	for _, csiDrivers := range served {
		for _, driver := range csiDrivers {
			ours[driver] = true
		}
	}
	sockets := map[string]string{}
	for _, r := range csiclient.Registrars(ctx, p.at(p.kubeletDir())) {
		if ours[r.Driver] {
			sockets[r.Driver] = strings.TrimPrefix(r.Endpoint, p.at(""))
		}
	}
	if config, err := p.config(); err == nil {
		for i := range config.Drivers {
			if d := &config.Drivers[i]; d.Endpoint != "" {
				sockets[d.CSIDriver] = bridgeconfig.SocketPath(d.Endpoint)
			}
		}
	}
	return sockets
}

// withoutLinks resolves the parent directory, and never touches the path itself, which
// may be a dead mount.
func withoutLinks(path string) string {
	return filepath.Join(resolved(filepath.Dir(path)), filepath.Base(path))
}

// checkVisible checks that the kubelet sees the mounts that the daemon made for pods.
func checkVisible(n *notes, s *bridgestatus.BridgeStatus, table []*mounter.Info) {
	mounted := map[string]bool{}
	for _, m := range table {
		mounted[m.Mountpoint] = true
	}
	for i := range s.Volumes {
		v := &s.Volumes[i]
		for _, t := range v.Targets {
			if t.Phase == bridgestatus.Published && !mounted[t.Dir] && !mounted[withoutLinks(t.Dir)] {
				n.add(mountInvisible, t.Dir, "volume %s is published for pod %s, and the kubelet sees no mount at %s", v.PersistentVolume, t.Pod.Describe(), t.Dir).
					evidence("looked at " + strconv.Itoa(len(table)) + " mounts")
			}
		}
	}
}
