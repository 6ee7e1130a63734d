package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// The node sees the machine's files and programs. What it writes goes to its
// own directory: to a second layer of these …
func layered() []string { return []string{"/etc", "/opt", "/usr", "/var"} }

// … and, where files have to be on a filesystem that is no overlay (containers
// have overlays of their own), or should be as on a real node, to directories of
// the node. Paths in the node, and in its directory.
func owned() map[string]string {
	return map[string]string{
		"/var/lib/kubelet":        "kubelet",
		"/var/lib/containerd":     "containerd",
		"/var/lib/flex2csi":       "flex2csi",
		"/var/lib/etcd":           "etcd",
		"/var/lib/csidriver":      "csidriver", // disks of the CSI drivers for tests
		"/var/lib/volumes":        "volumes",   // disks of the backend local
		"/var/log/pods":           "log/pods",
		"/usr/libexec/kubernetes": "libexec",
	}
}

// shadowed are settings of the kernel, below /proc/sys. In the node each is a
// plain file: the kubelet changes some (setupKernelTunables in
// pkg/kubelet/cm/container_manager_linux.go, Kubernetes v1.37.1), which would
// change them for the whole machine, and boot_id changes when the node reboots.
func shadowed() []string {
	return []string{
		"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
		"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes", bootID,
	}
}

const (
	bootID     = "kernel/random/boot_id"
	bootIDFile = "/proc/sys/" + bootID
)

// mountAll makes the namespace's mounts those of a node.
func mountAll(dir string) error {
	work, err := os.Getwd()
	if err != nil {
		return err
	}
	for _, step := range []func(dir string) error{mountProc, mountLayers, mountOwned, mountTemporary, mountShadows} {
		if err := step(dir); err != nil {
			return err
		}
	}
	// On a node / is shared, so that mounts get from it into pods and back.
	if err := unix.Mount("", "/", "", unix.MS_SHARED|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("share all mounts: %w", err)
	}
	return os.Chdir(work) // it may lie below a layer by now
}

func mountProc(string) error {
	return mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
}

// mount mounts, and says what it could not.
func mount(source, target, fsType string, flags uintptr, options string) error {
	if err := unix.Mount(source, target, fsType, flags, options); err != nil {
		return fmt.Errorf("mount %s (%s) on %s: %w", source, fsType, target, err)
	}
	return nil
}

// mountLayers lays a layer of the node's over directories of the machine. The
// node's own directory stays what it is, should it lie in one of them.
func mountLayers(dir string) error {
	self, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(self)
	for _, path := range layered() {
		upper, work := filepath.Join(dir, "layer", path), filepath.Join(dir, "layer", ".work", path)
		if err := errors.Join(os.MkdirAll(upper, 0o755), os.MkdirAll(work, 0o755)); err != nil {
			return err
		}
		options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", path, upper, work)
		if err := mount("node", path, "overlay", 0, options); err != nil {
			return err
		}
		if strings.HasPrefix(dir, path+"/") {
			if err := mount(fmt.Sprintf("/proc/self/fd/%d", self), dir, "", unix.MS_BIND, ""); err != nil {
				return err
			}
		}
	}
	return nil
}

func mountOwned(dir string) error {
	for path, own := range owned() {
		own = filepath.Join(dir, own)
		if err := errors.Join(os.MkdirAll(own, 0o755), os.MkdirAll(path, 0o755)); err != nil {
			return err
		}
		if err := mount(own, path, "", unix.MS_BIND, ""); err != nil {
			return err
		}
	}
	return nil
}

// mountTemporary mounts what a reboot empties, and what belongs to the
// namespace of System V's IPC.
func mountTemporary(string) error {
	if err := mount("run", "/run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755"); err != nil {
		return err
	}
	if err := os.Mkdir("/run/lock", 0o1777); err != nil {
		return err
	}
	if err := mount("shm", "/dev/shm", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777"); err != nil {
		return err
	}
	if _, err := os.Stat("/dev/mqueue"); err != nil {
		return nil //nolint:nilerr // it is optional
	}
	return mount("mqueue", "/dev/mqueue", "mqueue", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
}

func mountShadows(dir string) error {
	for _, name := range shadowed() {
		file, shadow := filepath.Join("/proc/sys", name), filepath.Join(dir, "sysctl", name)
		value, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // this kernel was built without
		}
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(shadow), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(shadow, value, 0o644); err != nil {
			return err
		}
		if err := mount(shadow, file, "", unix.MS_BIND, ""); err != nil {
			return err
		}
	}
	return nil
}
