package kubelet

import "golang.org/x/sys/unix"

// Watches reports whether a process watches a directory by inotify, as a kubelet watches
// its plugin directory (pkg/volume/flexvolume/probe.go, addWatchRecursive). There is no
// other sign that a running kubelet reads it. It is our own path.
func (h Host) Watches(pid int, path string) Seen {
	var st unix.Stat_t
	var fs unix.Statfs_t
	if unix.Stat(path, &st) != nil || unix.Statfs(path, &fs) != nil {
		return NotToBeTold
	}
	watches, err := h.inotify(pid)
	if err != nil {
		return NotToBeTold
	}
	if watches[watch{inode: st.Ino, major: unix.Major(st.Dev), minor: unix.Minor(st.Dev)}] {
		return Watched
	}
	switch fs.Type {
	case unix.BTRFS_SUPER_MAGIC, unix.OVERLAYFS_SUPER_MAGIC:
		return NotToBeTold
	}
	return NotWatched
}
