//go:build linux

package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/internal/distribution"
	"github.com/flex2csi/flex2csi/internal/hostfile"
)

// checkKubelet: where the kubelet looks for drivers, and what else it is
// configured to do that decides about FlexVolumes.
func (p *probe) checkKubelet(_ context.Context, n *notes) {
	k, err := p.kubelet()
	if err != nil {
		n.skip("which plugin directory the kubelet uses", "%v", err)
		p.checkPluginDir(n, p.pluginDir())
		return
	}
	if p.PluginDir != "" && resolved(p.at(filepath.Clean(p.PluginDir))) != resolved(p.at(k.PluginDir)) {
		n.add(pluginDirMismatch, k.PluginDir, "the kubelet (process %d) reads its drivers from %s, not from %s", k.PID, k.PluginDir, p.PluginDir).
			evidence(k.PluginDir + " is from " + k.PluginDirFrom)
	}
	p.checkPluginDir(n, k.PluginDir)
	for _, file := range k.ChangedSince() {
		n.add(kubeletNotRestarted, file, "%s is newer than the running kubelet (process %d, since %s)", file, k.PID, k.Started.UTC().Format("2006-01-02 15:04:05 UTC"))
	}
	if !k.AttachDetach {
		n.add(attachDetachOff, k.AttachDetachFrom, "the kubelet runs with enableControllerAttachDetach: false (from %s): it attaches by itself, and kube-controller-manager does not for this node", k.AttachDetachFrom)
	}
	if p.KubeletDir != "" && resolved(p.at(filepath.Clean(p.KubeletDir))) != resolved(p.at(k.RootDir)) {
		n.add(kubeletDirMismatch, k.RootDir, "the kubelet's --root-dir is %s, not %s", k.RootDir, p.KubeletDir)
	}
}

// resolved is a path without symbolic links, or as it is.
func resolved(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}

// checkPluginDir looks at the directory itself; checkDrivers looks into it.
func (p *probe) checkPluginDir(n *notes, dir string) {
	here := p.at(dir)
	info, err := os.Stat(here)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !p.pluginDirKnown():
		n.skip("the plugin directory", "it is not known, and the default %s does not exist; --volume-plugin-dir names it", dir)
	case errors.Is(err, fs.ErrNotExist):
		n.add(pluginDirMissing, dir, "the plugin directory %s does not exist", dir).evidence(p.whereFrom()...)
	case err != nil:
		n.skip("the plugin directory", "%v", err)
	case !info.IsDir():
		n.add(pluginDirMissing, dir, "%s is not a directory", dir).evidence(p.whereFrom()...)
	default:
		n.add(pluginDirUsed, dir, "drivers of the kubelet are in %s", dir).evidence(p.whereFrom()...)
		checkPluginMount(n, here, dir)
		// An installer makes files there with root's rights; what others can
		// put there, root will run.
		if err := hostfile.CheckTrustedDir(here, false); err != nil {
			n.add(pluginDirUntrusted, dir, "others than root can put programs there that the kubelet runs as root: %s", strings.ReplaceAll(err.Error(), here, dir))
		}
	}
	p.checkOtherDirs(n, here)
}

// pluginDirKnown reports whether the kubelet or the operator has named the directory.
func (p *probe) pluginDirKnown() bool {
	_, err := p.kubelet()
	return err == nil || p.PluginDir != ""
}

func (p *probe) whereFrom() []string {
	k, err := p.kubelet()
	if err != nil {
		return []string{"taken from --volume-plugin-dir or the default, not from the kubelet"}
	}
	facts := []string{fmt.Sprintf("kubelet: process %d; the directory is from %s", k.PID, k.PluginDirFrom)}
	if k.View != "" {
		facts = append(facts, "the kubelet sees other mounts than this process; looked at through "+k.View)
	}
	return facts
}

func checkPluginMount(n *notes, here, dir string) {
	var st unix.Statfs_t
	if unix.Statfs(here, &st) != nil {
		return
	}
	if st.Flags&unix.ST_NOEXEC != 0 {
		n.add(pluginDirNoExec, dir, "%s is mounted noexec, so that the kubelet cannot start any driver in it", dir)
	}
	if st.Flags&unix.ST_RDONLY != 0 {
		n.add(pluginDirReadOnly, dir, "%s is on a read-only filesystem", dir)
	}
}

// checkOtherDirs looks for drivers that were put into the plugin directories of other
// distributions by mistake.
func (p *probe) checkOtherDirs(n *notes, used string) {
	for _, dir := range distribution.PluginDirs() {
		here := p.at(dir)
		if resolved(here) == resolved(used) {
			continue
		}
		entries, err := os.ReadDir(here)
		if err != nil {
			continue
		}
		var drivers []string
		for _, e := range entries {
			if e.IsDir() && strings.Contains(e.Name(), "~") && !strings.HasPrefix(e.Name(), ".") {
				drivers = append(drivers, e.Name())
			}
		}
		if len(drivers) > 0 {
			n.add(pluginDirElsewhere, dir, "there are drivers in %s, which this kubelet does not read", dir).evidence(strings.Join(drivers, ", "))
		}
	}
}
