package escape

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
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
	dev                        uint64
	devices                    map[uint64]bool // of filesystems that were there before
	canaries                   map[uint64]bool // inodes, on the world's own filesystem
	disks                      map[string]bool // files behind loop devices that may be named
	hostDevice, diskDevice     string
	programs                   map[string]stage
	stubs                      []string
	drivers                    []*driver
	template                   []byte // an ext4
	lenient                    bool
	binary                     string
	cleanups                   []func()
}

// largest is the bound on sizes, which flexdriver is installed with.
func (w *world) largest() int64 { return 1 << 30 }

func sourceTypes() []string { return []string{"nfs", "cifs"} }

// newWorld makes one in a directory that does not exist yet.
func newWorld(t testing.TB, dir, binary string) *world {
	t.Helper()
	w := &world{
		dir: dir, binary: binary,
		kubelet: dir + "/kubelet", plugins: dir + "/plugins", roots: dir + "/roots", host: dir + "/host",
		images: dir + "/roots/images", directories: dir + "/roots/directories", devicesDir: dir + "/roots/devices",
		scratch:  dir + "/kubelet/pods/" + ownPod + "/volumes/kubernetes.io~empty-dir/scratch",
		programs: programsByFile(), disks: map[string]bool{}, canaries: map[uint64]bool{}, devices: map[uint64]bool{},
	}
	w.stubs = []string{"/sbin/mount.nfs", "/sbin/mount.cifs", "/usr/sbin/mount.nfs", "/usr/sbin/mount.cifs"}
	t.Cleanup(w.end)
	for _, step := range []func() error{w.layOut, w.formatTemplate, w.hideCanaries, w.attachDisks, w.spoil, w.refresh, w.install, w.note} {
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
		w.images + "/" + mine, w.images + "/" + theirs, w.directories + "/shared/sub", w.directories + "/" + mine, w.devicesDir,
		w.otherVolume(),
	} {
		errs = append(errs, os.MkdirAll(dir, 0o755))
	}
	return errors.Join(errs...)
}

func (w *world) otherVolume() string {
	return w.kubelet + "/pods/" + otherPod + "/volumes/kubernetes.io~empty-dir/data"
}

// formatTemplate makes an ext4 with a canary as its label, once.
func (w *world) formatTemplate() error {
	path := w.host + "/template.img"
	if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, diskBytes)); err != nil {
		return err
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", "-O", "^has_journal", path).CombinedOutput(); err != nil {
		return fmt.Errorf("mkfs.ext4: %w: %s", err, out)
	}
	var err error
	w.template, err = os.ReadFile(path)
	return err
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
		errs = append(errs, sparse(path, w.template))
	}
	for _, path := range append(append(files, images...), w.host, w.host+"/dir", w.host+"/dir/sub", w.otherVolume()) {
		w.canaries[inode(path)] = true
	}
	return errors.Join(errs...)
}

// sparse writes a file with holes for zeros.
func sparse(path string, content []byte) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	const block = 4096
	zeros := string(make([]byte, block))
	for at := 0; at+block <= len(content); at += block {
		if part := content[at : at+block]; string(part) != zeros {
			if _, err := f.WriteAt(part, int64(at)); err != nil {
				return err
			}
		}
	}
	return f.Truncate(int64(len(content)))
}

// attachDisks makes one disk that volumes may be on, and one of the host's, which is
// mounted.
func (w *world) attachDisks() error {
	disk := w.dir + "/disk.img"
	err := sparse(disk, w.template)
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
	return errors.Join(err, os.WriteFile(w.host+"/mnt/file", []byte(canary), 0o600),
		os.Symlink(w.diskDevice, w.devicesDir+"/disk"), os.Symlink(w.hostDevice, w.devicesDir+"/host"))
}

// loop attaches a file to a loop device. What detaches it is a process of its own, which
// does so when this one has ended, however it ends: the device may not go with its last
// user, which the driver takes for an image's.
func (w *world) loop(file string) (string, error) {
	out, err := exec.Command("losetup", "-f", "--show", file).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("losetup: %w: %s", err, out)
	}
	device := strings.TrimSpace(string(out))
	keeper := exec.Command("sh", "-c", `read -r line; exec losetup -d "$0"`, device)
	keeper.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	in, err := keeper.StdinPipe()
	if err == nil {
		err = keeper.Start()
	}
	w.cleanups = append(w.cleanups, func() { in.Close(); _ = keeper.Wait() })
	return device, err
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
		err = errors.Join(err, sparse(dir+"/"+name, w.template))
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
		w.devices[unix.Mkdev(uint32(m.Major), uint32(m.Minor))] = true
		if unix.Lstat(m.Mountpoint, &st) == nil {
			w.devices[st.Dev] = true
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
