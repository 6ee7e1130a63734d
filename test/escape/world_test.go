package escape

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

const (
	// canary is in every secret file, mark in every environment
	// variable that no program may see.
	canary = "CANARY-7f3a91"
	mark   = "ESCAPE-ENVIRONMENT"

	vendor    = "example.com"
	mine      = "team-a" // the attacker's namespace
	theirs    = "team-b"
	crowded   = "team-c" // has as many images as it may
	ownPod    = "0c5d9c4e-0001-4000-8000-000000000001"
	otherPod  = "0c5d9c4e-0002-4000-8000-000000000002"
	diskBytes = 8 << 20
)

// A world is one node: a kubelet's directory, plugins, what volumes may be made of,
// and what must not be touched.
type world struct {
	dir                        string
	kubelet, plugins           string
	roots, images, directories string
	devicesDir, scratch, host  string
	// Roots in a directory of another user's, behind a link of another user's, and a link
	// to the parent of the image root.
	otherRoots, linkedRoots, alias string
	dev                            uint64
	filesystems                    map[uint64]bool // of filesystems that were there before
	canaries                       map[uint64]bool // inodes, on the world's own filesystem
	disks                          map[string]bool // files behind loop devices that may be named
	hostDevice, diskDevice         string
	programs                       map[string]stage
	stubs                          []string
	drivers                        []*driver
	lenient                        bool
	log                            string // of the drivers with roots
	cleanups                       []func()
	*common
}

// The bounds that flexdriver is installed with: on all sizes, and on the images of a
// namespace.
const (
	largest  = 1 << 30
	mostSize = 400 << 20
	most     = 12
	// room is what a new image may have at most: more is promised to another, or the reserve.
	room = 600 << 20
)

func sourceTypes() []string { return []string{"nfs", "cifs"} }

// newWorld makes one in a directory that does not exist yet.
func newWorld(t testing.TB, dir string, c *common) *world {
	t.Helper()
	w := &world{
		otherRoots: dir + "/other/roots", linkedRoots: dir + "/linked", alias: dir + "/alias",
		common: c, dir: dir, log: dir + "/run/log",
		kubelet: dir + "/kubelet", plugins: dir + "/plugins", roots: dir + "/roots", host: dir + "/host",
		images: dir + "/roots/images", directories: dir + "/roots/directories", devicesDir: dir + "/roots/devices",
		scratch:  dir + "/kubelet/pods/" + ownPod + "/volumes/kubernetes.io~empty-dir/scratch",
		programs: programsByFile(), disks: map[string]bool{}, canaries: map[uint64]bool{}, filesystems: map[uint64]bool{},
	}
	w.stubs = []string{"/sbin/mount.nfs", "/sbin/mount.cifs", "/usr/sbin/mount.nfs", "/usr/sbin/mount.cifs"}
	t.Cleanup(w.end)
	for _, step := range []func() error{w.layOut, w.hideCanaries, w.attachDisks, w.spoil, w.otherUsers, w.refresh, w.install, w.fill, w.note} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func (w *world) end() {
	for _, cleanup := range slices.Backward(w.cleanups) {
		cleanup()
	}
	os.RemoveAll(w.dir)
}

func (w *world) layOut() error {
	var errs []error
	for _, dir := range []string{
		w.kubelet + "/plugins/kubernetes.io/flexvolume", w.plugins, w.scratch + "/bin", w.host + "/dir/sub", w.host + "/mnt",
		w.images + "/" + mine, w.images + "/" + theirs, w.images + "/" + crowded, w.directories + "/shared/sub", w.directories + "/" + mine, w.devicesDir,
		w.otherVolume(),
	} {
		errs = append(errs, os.MkdirAll(dir, 0o755))
	}
	return errors.Join(errs...)
}

func (w *world) otherVolume() string {
	return w.kubelet + "/pods/" + otherPod + "/volumes/kubernetes.io~empty-dir/data"
}

// hideCanaries writes what must not be read, and remembers the inodes.
func (w *world) hideCanaries() error {
	text := []byte(canary + "\nroot:x:0:0::/root:/bin/sh\npassword=" + canary + "\n[options]\n")
	files := []string{w.host + "/shadow", w.host + "/dir/file", w.host + "/dir/sub/file", w.host + "/mke2fs.conf", w.host + "/blkid.conf", w.otherVolume() + "/file", w.dir + "/etc"}
	var errs []error
	for _, path := range files {
		errs = append(errs, os.WriteFile(path, text, 0o600))
	}
	images := []string{w.host + "/host.img", w.host + "/mounted.img", w.images + "/" + theirs + "/theirs.img", w.otherVolume() + "/data.img"}
	for _, path := range images {
		errs = append(errs, w.ext4(path))
	}
	for _, path := range append(append(files, images...), w.host, w.host+"/dir", w.host+"/dir/sub", w.otherVolume()) {
		w.canaries[inode(path)] = true
	}
	return errors.Join(errs...)
}

// attachDisks makes one disk that volumes may be on, and one of the host's, which is
// mounted.
func (w *world) attachDisks() error {
	disk := w.dir + "/disk.img"
	err := w.ext4(disk)
	w.disks[disk] = true
	if err == nil {
		w.diskDevice, err = w.loop(disk)
	}
	if err == nil {
		w.hostDevice, err = w.loop(w.host + "/mounted.img")
	}
	if err == nil {
		err = unix.Mount(w.hostDevice, w.host+"/mnt", "ext4", 0, "")
		w.cleanups = append(w.cleanups, func() { _ = unix.Unmount(w.host+"/mnt", unix.MNT_DETACH) })
	}
	errs := []error{
		err, os.WriteFile(w.host+"/mnt/file", []byte(canary), 0o600),
		os.Symlink(w.diskDevice, w.devicesDir+"/disk"), os.Symlink(w.hostDevice, w.devicesDir+"/host"),
	}
	for name, device := range w.devices {
		errs = append(errs, os.Symlink(device, w.devicesDir+"/"+name))
	}
	return errors.Join(errs...)
}

// fill makes as many images of one namespace as it may have, and one of another that is
// promised all but the reserve and some room.
func (w *world) fill() error {
	var errs []error
	for n := range most {
		errs = append(errs, os.WriteFile(fmt.Sprintf("%s/%s/%d.img", w.images, crowded, n), []byte("x"), 0o600))
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(w.images, &fs); err != nil {
		return err
	}
	const reserve = 10 // a tenth
	promised := int64(fs.Bavail)*fs.Frsize - int64(fs.Blocks)*fs.Frsize/reserve - room
	name := w.images + "/" + theirs + "/large.img"
	return errors.Join(append(errs, os.WriteFile(name, nil, 0o600), os.Truncate(name, promised))...)
}

// otherUsers makes roots that other users can replace. What is in them is root's.
func (w *world) otherUsers() error {
	var errs []error
	for _, dir := range []string{"/images/" + mine, "/directories/shared", "/devices"} {
		errs = append(errs, os.MkdirAll(w.otherRoots+dir, 0o755))
	}
	return errors.Join(append(errs,
		w.ext4(w.otherRoots+"/images/"+mine+"/old-1.img"), os.Symlink(w.devices["labelled"], w.otherRoots+"/devices/disk"),
		os.Chown(w.dir+"/other", 1000, 1000),
		os.Symlink(w.roots, w.linkedRoots), os.Lchown(w.linkedRoots, 1000, 1000), os.Symlink(w.roots, w.alias))...)
}

// refresh makes the images of the attacker's namespace as they were.
func (w *world) refresh() error {
	dir := w.images + "/" + mine
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "new") {
			err = errors.Join(err, os.Remove(dir+"/"+e.Name()))
		}
	}
	for _, name := range []string{"old-1.img", "old-2.img"} {
		_ = os.Remove(dir + "/" + name)
		err = errors.Join(err, w.ext4(dir+"/"+name))
	}
	return err
}

// note remembers which filesystems are not those of volumes.
func (w *world) note() error {
	var st unix.Stat_t
	if err := unix.Stat(w.dir, &st); err != nil {
		return err
	}
	w.dev = st.Dev
	mounts, err := mountinfo.GetMounts(nil)
	for _, m := range mounts {
		if hangs(m.Mountpoint) {
			continue
		}
		w.filesystems[unix.Mkdev(uint32(m.Major), uint32(m.Minor))] = true
		if unix.Lstat(m.Mountpoint, &st) == nil {
			w.filesystems[st.Dev] = true
		}
	}
	return err
}

// target makes the directory of a volume, as the kubelet does before it calls.
func (w *world) target(d *driver, uid, volume string) string {
	dir := filepath.Join(w.kubelet, "pods", uid, "volumes", d.escaped(), volume)
	_ = os.MkdirAll(dir, 0o750)
	return dir
}

func (w *world) deviceMount(d *driver, volume string) string {
	dir := filepath.Join(w.kubelet, "plugins/kubernetes.io/flexvolume", d.name, "mounts", volume)
	_ = os.MkdirAll(dir, 0o750)
	return dir
}
