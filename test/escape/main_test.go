package escape

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/test/testenv"
)

// envBinary names the flexdriver under test, as make does. Without it one is built.
const envBinary = "FLEXDRIVER_BINARY"

func TestMain(m *testing.M) { testenv.Main(m) }

// prepare makes this process's mount namespace a node: the machine's files are
// read-only, its disks are not there, and there are programs that stand for mount.nfs
// and mount.cifs. It returns a directory in memory, and the flexdriver under test.
func prepare(t *testing.T) (dir, binary string) {
	t.Helper()
	for _, need := range []string{"ext4", "fuse", "overlay", "prog:losetup"} {
		testenv.Need(t, need)
	}
	dir = t.TempDir()
	t.Cleanup(func() { _ = writable() }) // for the end of the directory
	if err := unix.Mount("escape", dir, "tmpfs", 0, "size=8g,mode=0755"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	binary, err := testenv.Program(dir, envBinary, "../../cmd/flexdriver")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(ownDev(dir+"/dev"), ownHelpers(dir+"/sbin"), ownRun(), readOnly()); err != nil {
		t.Fatal(err)
	}
	return dir, binary
}

// ownDev puts a /dev in place that has no disks but loop devices.
func ownDev(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("dev", dir, "tmpfs", 0, "mode=0755"); err != nil {
		return err
	}
	var errs []error
	for name, minor := range map[string]uint32{"null": 3, "zero": 5, "full": 7, "random": 8, "urandom": 9} {
		errs = append(errs, unix.Mknod(dir+"/"+name, unix.S_IFCHR|0o666, int(unix.Mkdev(1, minor))), os.Chmod(dir+"/"+name, 0o666))
	}
	for n := range uint32(128) {
		errs = append(errs, unix.Mknod(fmt.Sprintf("%s/loop%d", dir, n), unix.S_IFBLK|0o600, int(unix.Mkdev(loopMajor, n))))
	}
	return errors.Join(append(errs,
		unix.Mknod(dir+"/loop-control", unix.S_IFCHR|0o600, int(unix.Mkdev(10, 237))),
		unix.Mknod(dir+"/fuse", unix.S_IFCHR|0o666, int(unix.Mkdev(10, 229))),
		os.Symlink("/proc/self/fd", dir+"/fd"), os.Mkdir(dir+"/shm", 0o777),
		unix.Mount(dir, "/dev", "", unix.MS_MOVE, ""))...)
}

// ownRun puts a /run in place where mount(8) can have its lock.
func ownRun() error {
	return errors.Join(unix.Mount("run", "/run", "tmpfs", 0, "mode=0755"), os.Mkdir("/run/mount", 0o755))
}

// ownHelpers lays programs over those in /usr/sbin, where mount(8) looks for them.
func ownHelpers(dir string) error {
	// The share leak is one of which mount.cifs says too much: its credentials.
	script := `#!/bin/sh
case "$*" in *leak*credentials=*)
	file=${*##*credentials=}
	while read -r line; do echo "mount error: not ${line#*=}" >&2; done <"${file%%[ ,]*}"
	exit 32
esac
exec mount -i -n -t tmpfs none "$2"
`
	var errs []error
	for _, name := range []string{"upper", "work"} {
		errs = append(errs, os.MkdirAll(filepath.Join(dir, name), 0o755))
	}
	for _, fsType := range sourceTypes() {
		errs = append(errs, os.WriteFile(filepath.Join(dir, "upper/mount."+fsType), []byte(script), 0o755))
	}
	options := fmt.Sprintf("lowerdir=/usr/sbin,upperdir=%s/upper,workdir=%[1]s/work", dir)
	return errors.Join(append(errs, unix.Mount("overlay", "/usr/sbin", "overlay", 0, options))...)
}

func readOnly() error {
	if err := unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("make the machine's files read-only: %w", err)
	}
	return nil
}

func writable() error { return unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND, "") }
