package faults

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/pkg/flex"
)

// A volume is a PersistentVolume.
type volume struct {
	name, handle string
	driver       string // Flex driver
	accessMode   string
	fsGroup      *int64
	// size in MiB that was asked for last.
	size atomic.Int64
	// attachment is what kube-controller-manager knows of it; attach:true.
	attachment attachment
}

func (v *volume) attach() bool { return v.driver == deviceDriver }

// nameFile holds the handle of the volume that it is in.
const nameFile = "NAME"

// imageSize is the least that ext4 can do with.
const imageSize = "8Mi"

// makeVolumes makes them before the driver starts, with their name in each.
func (w *world) makeVolumes() error {
	random := w.random("volumes")
	drivers := []string{plainDriver, deviceDriver, deviceDriver, directDriver}
	for n := range w.Volumes {
		v := &volume{name: fmt.Sprintf("pv-%d", n), handle: fmt.Sprintf("vol-%d", n), driver: drivers[n%len(drivers)]}
		v.accessMode = []string{"ReadWriteOnce", "ReadWriteMany"}[random.IntN(2)]
		if random.IntN(3) == 0 {
			v.fsGroup = new(int64(4000 + n))
		}
		w.volumes = append(w.volumes, v)
		w.Driver = append(w.Driver, "--volume", v.handle+"="+imageSize)
	}
	// One run of the driver makes them.
	if err := w.driver.start(); err != nil {
		return err
	}
	for _, v := range w.volumes {
		if err := w.mark(w.disks(), v); err != nil {
			return err
		}
	}
	w.driver.hold(unix.SIGTERM)
	return w.driver.release()
}

// mark writes a volume's name into it when a driver with this directory has
// made it.
func (w *world) mark(disks string, v *volume) error {
	image := filepath.Join(disks, "volumes", v.handle)
	if err := eventually(func() error { _, err := os.Stat(image + ".json"); return err }); err != nil {
		return fmt.Errorf("the driver makes no volumes: %w\n%s", err, tail(w.path("driver.log"), 10))
	}
	if !w.Images {
		return os.WriteFile(filepath.Join(image+".d", nameFile), []byte(v.handle), 0o644)
	}
	source := w.path("source")
	if err := errors.Join(os.MkdirAll(source, 0o755), os.WriteFile(filepath.Join(source, nameFile), []byte(v.handle), 0o644)); err != nil {
		return err
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", "-d", source, image+".img").CombinedOutput(); err != nil {
		return fmt.Errorf("make the filesystem of %s: %w: %s", v.handle, err, out)
	}
	return nil
}

// volumeNamed returns the volume with that name of a PersistentVolume.
func (w *world) volumeNamed(name string) *volume {
	for _, v := range w.volumes {
		if v.name == name {
			return v
		}
	}
	return nil
}

// options is the JSON argument of a callout.
func (w *world) options(v *volume, readOnly bool, pod string) string {
	o := flex.Options{VolumeName: v.name, ReadOnly: readOnly, User: map[string]string{"volumeHandle": v.handle, "accessMode": v.accessMode}}
	if w.Images {
		o.FSType = "ext4"
	}
	if pod != "" {
		o.PodName, o.PodNamespace, o.PodUID, o.FSGroup = pod, "default", pod, v.fsGroup
	}
	text, err := o.MarshalArgument()
	if err != nil {
		panic(err) // strings make JSON
	}
	return text
}

// A place is where a pod has a volume.
type place struct {
	dir      string
	volume   *volume
	readOnly bool
	pod      string
	// found: it was a mount point before any call for it.
	found bool
}

// mayVanish: a CSI driver that publishes into the pod's directory itself shows
// there what is not finished, and what is undone then (docs, directPublish).
func (p *place) mayVanish() bool { return p.found && p.volume.driver == directDriver }

// check looks whether the pod has what it was promised.
func (p place) check() error {
	if !isMount(p.dir) {
		return errors.New("nothing is mounted there")
	}
	name, err := os.ReadFile(filepath.Join(p.dir, nameFile))
	if err != nil {
		return err
	}
	if string(name) != p.volume.handle {
		return fmt.Errorf("there is volume %q, not %q", name, p.volume.handle)
	}
	own := filepath.Join(p.dir, "of-"+p.pod)
	err = os.WriteFile(own, []byte(p.pod), 0o600)
	if p.readOnly {
		if !errors.Is(err, unix.EROFS) {
			return fmt.Errorf("writing to what is read-only: %v", err)
		}
		return nil
	}
	if err != nil {
		return err
	}
	if p.mayVanish() && !isMount(p.dir) { // it has, and the file may be in the directory below
		_ = os.Remove(own)
		return errors.New("nothing is mounted there any more")
	}
	st, err := os.Stat(p.dir)
	if err != nil {
		return err
	}
	if gid := st.Sys().(*syscall.Stat_t).Gid; p.volume.fsGroup != nil && int64(gid) != *p.volume.fsGroup {
		return fmt.Errorf("it belongs to group %d, not %d", gid, *p.volume.fsGroup)
	}
	return nil
}

// leave checks once more and takes away what the pod has written.
func (p place) leave() error {
	if err := p.check(); err != nil || p.readOnly {
		return err
	}
	return os.Remove(filepath.Join(p.dir, "of-"+p.pod))
}

// isMount asks the kernel without touching what is mounted.
func isMount(path string) bool {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, unix.STATX_BASIC_STATS, &st)
	return err == nil && st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// escaped is a driver's name in the paths of pods.
func escaped(driver string) string { return strings.ReplaceAll(driver, "/", "~") }
