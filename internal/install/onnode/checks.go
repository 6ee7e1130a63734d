package onnode

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/internal/install"
	"github.com/flex2csi/flex2csi/internal/kubelet"
)

// prepare checks that the kubelet can use drivers in its plugin directory, and returns
// the path of that directory here.
func (n Node) prepare(d kubelet.Dirs) (dir string, err error) {
	if err := n.checkRootDir(d); err != nil {
		return "", err
	}
	if dir, err = n.Query.Host.Resolve(d.Plugin.Path); err != nil {
		return "", fmt.Errorf("plugin directory %s: %w", d.Plugin.Path, err)
	}
	made, err := n.ensure(dir, d)
	if err != nil {
		return "", err
	}
	if err := install.CheckPluginDir(dir, n.Query.Host.Root); err != nil {
		return "", err
	}
	if err := n.checkSame(dir, d); err != nil {
		return "", err
	}
	n.checkWatched(dir, d, made)
	n.checkSELinux(dir)
	return dir, nil
}

// checkRootDir checks the kubelet's directory. The daemon mounts volumes below it, so
// the daemon's pod must have it at the same path.
func (n Node) checkRootDir(d kubelet.Dirs) error {
	k := d.Kubelet
	if k == nil || d.Root.Path == k.RootDir {
		return nil
	}
	if n.Query.Host.Root == "" { // by any name, as the daemon sees what we see
		ours, err1 := os.Stat(d.Root.Path)
		theirs, err2 := os.Stat(k.RootDir)
		if err1 == nil && err2 == nil && os.SameFile(ours, theirs) {
			return nil
		}
	}
	return fmt.Errorf("the kubelet (process %d) keeps its volumes below %s (%s), and this was told %s (%s): set kubeletDir to %s in the manifests (--kubelet-dir of serve and install, and the directory that is mounted)",
		k.PID, k.RootDir, k.RootDirFrom, d.Root.Path, d.Root.From, k.RootDir)
}

// ensure makes the plugin directory where a kubelet is known to want it there.
// made tells whether it had to.
func (n Node) ensure(dir string, d kubelet.Dirs) (made bool, err error) {
	info, err := os.Stat(dir)
	switch {
	case err == nil && !info.IsDir():
		return false, fmt.Errorf("plugin directory %s is not a directory", d.Plugin.Path)
	case err == nil:
		return false, nil
	case !errors.Is(err, fs.ErrNotExist):
		return false, fmt.Errorf("plugin directory: %w", err)
	case d.Plugin.Guessed:
		return false, fmt.Errorf("plugin directory %s (from %s) does not exist, and which one the kubelet reads cannot be told: %w; name it with volumePluginDir in the manifests (--volume-plugin-dir; %s)",
			d.Plugin.Path, d.Plugin.From, d.Unseen, install.KnownPluginDirs(n.Query.Host.Root))
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		hint := ""
		if errors.Is(err, unix.EROFS) {
			hint = ": it is on a read-only file system. Choose a directory that can be written to, and give it to the kubelet as volumePluginDir (or --volume-plugin-dir; " + install.KnownPluginDirs(n.Query.Host.Root) + ")"
		}
		return false, fmt.Errorf("make plugin directory %s, which the kubelet is told to use (%s): %w%s", d.Plugin.Path, d.Plugin.From, err, hint)
	}
	n.say("made %s", d.Plugin.Path)
	return true, nil
}

// checkSame checks that the path is the same directory for the kubelet. In a container
// it may be another one, or not exist.
func (n Node) checkSame(dir string, d kubelet.Dirs) error {
	k := d.Kubelet
	if k == nil {
		return nil
	}
	theirs, err := k.Stat(d.Plugin.Path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		n.warn("whether %s is the same directory for the kubelet (process %d) cannot be told: %v", d.Plugin.Path, k.PID, err)
		return nil
	}
	ours, statErr := os.Stat(dir)
	if statErr != nil || err == nil && os.SameFile(ours, theirs) {
		return statErr
	}
	what := "has another directory by that name"
	if err != nil {
		what = "has no such directory"
	}
	return fmt.Errorf("the kubelet (process %d) sees another %s than the node has: it %s. It runs in a container: mount the node's directory there", k.PID, d.Plugin.Path, what)
}

// checkWatched checks that the kubelet watches the directory. A kubelet that could not
// create it at its start reads no drivers until its next start (pkg/volume/plugins.go, InitPlugins:
// dummyPluginProber).
func (n Node) checkWatched(dir string, d kubelet.Dirs, made bool) {
	seen := kubelet.NotToBeTold
	if d.Kubelet != nil {
		seen = n.Query.Host.Watches(d.Kubelet.PID, dir)
	}
	switch {
	case seen == kubelet.Watched:
		n.say("the kubelet (process %d) watches %s", d.Kubelet.PID, d.Plugin.Path)
	case seen == kubelet.NotWatched:
		n.warn("the kubelet (process %d) does not watch %s, so that it finds no driver there: if it is told to use it, restart it (one that had no such directory when it started reads no drivers until then)", d.Kubelet.PID, d.Plugin.Path)
	case made:
		n.warn("there was no %s: a kubelet that had none when it started reads no drivers until it is restarted", d.Plugin.Path)
	}
}

// checkSELinux warns where SELinux is enforcing: this process may start a program that
// the kubelet, in another domain, may not.
func (n Node) checkSELinux(dir string) {
	enforcing, err := os.ReadFile(n.Query.Host.At("/sys/fs/selinux/enforce"))
	if err != nil || strings.TrimSpace(string(enforcing)) != "1" {
		return
	}
	label := make([]byte, 256)
	size, err := unix.Getxattr(dir, "security.selinux", label)
	what := "its label is not known"
	if err == nil {
		what = "its label is " + strings.TrimRight(string(label[:size]), "\x00")
	}
	n.warn("SELinux is enforcing on this node: whether the kubelet may run what lies in %s (%s) only the kubelet can tell. If it logs \"permission denied\" for a driver: ausearch -m avc -c %s shows why, and chcon -R -t bin_t %s, or a rule of semanage fcontext, allows it",
		dir, what, "kubelet", filepath.Clean(dir))
}
