package contract

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/volume"
	"k8s.io/utils/exec"
)

// roles are what this test binary does as a helper process, when envRole names
// one of them: where a kubelet may crash, and where a driver call needs
// surroundings that only a process of its own can have.
func roles() map[string]func(args []string) int {
	return map[string]func([]string) int{
		"barren":          barren,
		"empty-root":      emptyRoot,
		"fuse-helper":     fuseHelper,
		"fuse-server":     fuseServer,
		"no-sys-resource": noSysResource,
		"probe":           probe,
		"waitforattach":   waitForAttach,
	}
}

// inRole returns a wrapper that hands the driver call to a helper process.
func inRole(role string) wrapper {
	return func(argv []string) []string {
		return append([]string{"/usr/bin/env", envRole + "=" + role, self()}, argv...)
	}
}

func self() string {
	exe, err := os.Executable()
	if err != nil {
		panic(err) // /proc is there: these tests read mountinfo
	}
	return exe
}

// barren executes args where every file system is read-only and /run is empty.
func barren(args []string) int {
	steps := []func() error{
		func() error { return unix.Unshare(unix.CLONE_NEWNS) },
		func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") },
		func() error { return unix.Mount("none", "/run", "tmpfs", unix.MS_RDONLY, "") },
		func() error {
			return unix.MountSetattr(unix.AT_FDCWD, "/", unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
		},
	}
	return execAfter(steps, args, nil)
}

// emptyRoot executes args where there is nothing but the driver's directory: no
// /proc, no /dev, no programs, as in the controller manager's container.
func emptyRoot(args []string) int {
	dir := filepath.Dir(args[0])
	root := filepath.Join(os.TempDir(), "root") // inside the tmpfs below
	steps := []func() error{
		func() error { return unix.Unshare(unix.CLONE_NEWNS) },
		func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") },
		// A detached copy, because the tmpfs may cover the original.
		func() error { return bindInto(dir, os.TempDir(), root) },
		func() error { return unix.Chroot(root) },
		func() error { return unix.Chdir("/") },
	}
	return execAfter(steps, args, []string{})
}

// noSysResource executes args without the capability CAP_SYS_RESOURCE.
func noSysResource(args []string) int {
	drop := func() error { return unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_SYS_RESOURCE, 0, 0, 0) }
	return execAfter([]func() error{drop}, args, nil)
}

func bindInto(dir, over, root string) error {
	tree, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return fmt.Errorf("copy %s: %w", dir, err)
	}
	defer unix.Close(tree)
	if err := unix.Mount("none", over, "tmpfs", 0, "size=64k"); err != nil {
		return fmt.Errorf("tmpfs on %s: %w", over, err)
	}
	target := filepath.Join(root, dir)
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	return unix.MoveMount(tree, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// execAfter replaces this process by args when all steps are done. They change
// one thread only, which stays the one that executes.
func execAfter(steps []func() error, args, env []string) int {
	runtime.LockOSThread()
	for i, step := range steps {
		if err := step(); err != nil {
			fmt.Printf("step %d of the helper process: %v\n", i, err)
			return 1
		}
	}
	if env == nil {
		env = os.Environ()
	}
	fmt.Printf("execute %q: %v\n", args, syscall.Exec(args[0], args, env))
	return 1
}

// probe is a kubelet that looks for drivers in the plugin directory args[0].
func probe(args []string) int {
	plugin, err := probeOnce(args[0])
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("registered", plugin.GetPluginName())
	return 0
}

func probeOnce(pluginDir string) (volume.VolumePlugin, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	prober := newProber(ctx, pluginDir, exec.New())
	if err := prober.Init(); err != nil {
		return nil, err
	}
	events, err := prober.Probe()
	if err != nil {
		return nil, err
	}
	if len(events) != 1 {
		return nil, fmt.Errorf("%d drivers in %s, want 1", len(events), pluginDir)
	}
	return events[0].Plugin, nil
}

// waitForAttach is a kubelet with a timeout of a second for waitforattach. It
// lives on until the timer that may crash it has fired (k8s.io/utils/exec,
// cmdWrapper.Stop: 10 s after the SIGTERM).
func waitForAttach(args []string) int {
	plugin, err := probeOnce(args[0])
	if err != nil {
		fmt.Println(err)
		return 1
	}
	attacher, err := plugin.(volume.AttachableVolumePlugin).NewAttacher()
	if err != nil {
		fmt.Println(err)
		return 1
	}
	spec := volume.NewSpecFromVolume(&v1.Volume{Name: "pv-1", VolumeSource: v1.VolumeSource{
		FlexVolume: &v1.FlexVolumeSource{Driver: driverName, FSType: "ext4", Options: map[string]string{"device": absentDevice}},
	}})
	begin := time.Now()
	_, err = attacher.WaitForAttach(spec, "", nil, time.Second)
	fmt.Printf("waitforattach returned %q after %v\n", err, time.Since(begin).Round(100*time.Millisecond))
	time.Sleep(time.Until(begin.Add(12 * time.Second)))
	fmt.Println("the kubelet lives")
	return 0
}

// absentDevice is a block device that never appears.
const absentDevice = "/dev/disk/by-id/flex2csi-contract-absent"
