package install

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/internal/distribution"
)

// resolvePluginDir returns path without symbolic links. Its error says what to do.
func resolvePluginDir(path string) (string, error) {
	if !filepath.IsAbs(path) {
		return "", fmt.Errorf("plugin directory %q is not absolute", path)
	}
	if strings.Contains(filepath.Base(path), "~") {
		return "", fmt.Errorf("%s looks like the directory of one driver: give the plugin directory above it", path)
	}
	resolved, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("plugin directory %s does not exist; it must be the kubelet's --volume-plugin-dir (%s)", path, KnownPluginDirs(""))
	}
	if err != nil {
		return "", fmt.Errorf("plugin directory %s: %w", path, err)
	}
	if info, err := os.Stat(resolved); err == nil && !info.IsDir() {
		return "", fmt.Errorf("plugin directory %s is not a directory", path)
	}
	return resolved, nil
}

// CheckPluginDir refuses a directory in which nothing can be changed or started. Root is
// the node's / in a container.
func CheckPluginDir(dir, root string) error {
	if err := checkWritable(dir, root); err != nil {
		return err
	}
	return checkExecutable(dir, root)
}

func checkWritable(dir, root string) error {
	var st unix.Statfs_t
	err := unix.Statfs(dir, &st)
	if err == nil && st.Flags&unix.ST_RDONLY != 0 {
		return fmt.Errorf("plugin directory %s is on a read-only file system: choose a writable directory and %s", dir, giveIt(root))
	}
	if err == nil {
		err = unix.Access(dir, unix.W_OK|unix.X_OK)
	}
	if err != nil {
		return fmt.Errorf("plugin directory %s cannot be written: %w (are you root?)", dir, err)
	}
	return nil
}

func checkExecutable(dir, root string) error {
	var st unix.Statfs_t
	err := unix.Statfs(dir, &st)
	if err == nil && st.Flags&unix.ST_NOEXEC != 0 {
		return fmt.Errorf("plugin directory %[1]s is mounted noexec, so the kubelet could not start the driver: mount it with exec (mount --bind %[1]s %[1]s && mount -o remount,bind,exec %[1]s) or choose another directory and %[2]s", dir, giveIt(root))
	}
	return err
}

// giveIt is what to do with another directory.
func giveIt(root string) string {
	return "give it to the kubelet as --volume-plugin-dir, too, or as volumePluginDir in its configuration (" + KnownPluginDirs(root) + ")"
}

// warnOfOthers: the kubelet runs programs in the plugin directory as root.
func (in *installer) warnOfOthers() {
	info, err := os.Stat(in.pluginDir)
	if err == nil && info.Mode().Perm()&0o022 != 0 {
		in.warn("%s has mode %04o: users who may write there can have the kubelet run programs as root (chmod go-w)", in.pluginDir, info.Mode().Perm())
	}
}

// checkDriverDir reports whether the driver's directory exists, and refuses what is no
// directory.
func checkDriverDir(d driverDir) (exists bool, err error) {
	info, err := lstat(d.path)
	switch {
	case err != nil || info == nil:
		return false, err
	case info.Mode().Type() == fs.ModeSymlink:
		// probeAll in pkg/volume/flexvolume/probe.go takes directories only.
		return false, fmt.Errorf("%s is a symbolic link, which the kubelet ignores when it starts: remove it (installing makes a directory)", d.path)
	case !info.IsDir():
		return false, fmt.Errorf("%s is not a directory: move it away", d.path)
	}
	info, err = lstat(d.executable(current))
	if err != nil {
		return false, err
	}
	if info != nil && !info.Mode().IsRegular() && info.Mode().Type() != fs.ModeSymlink {
		return false, fmt.Errorf("%s is no file: move it away", d.executable(current))
	}
	return true, nil
}

// KnownPluginDirs says which well-known plugin directories a node has. Root is its / in a
// container.
func KnownPluginDirs(root string) string {
	var found []string
	for _, dir := range distribution.PluginDirs() {
		if info, err := os.Stat(root + dir); err == nil && info.IsDir() {
			found = append(found, dir)
		}
	}
	if len(found) == 0 {
		return "no well-known one exists here either; is this a node?"
	}
	return "this node has " + strings.Join(found, ", ")
}
