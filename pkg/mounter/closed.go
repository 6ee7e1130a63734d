package mounter

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	utilexec "k8s.io/utils/exec"
)

// searchPath is where programs are looked for, by this package and by what it
// starts. PATH is not inherited: a kubelet's often lacks sbin, and what is
// executed as root is not for the environment to say. The last directory is
// that of NixOS, which has no other.
const searchPath = "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin:/run/current-system/sw/bin"

// helperPath is where mount(8) looks for its helpers: its build option
// --enable-fs-paths-default, and NixOS.
const helperPath = "/sbin:/sbin/fs.d:/sbin/fs:/run/current-system/sw/bin"

// childEnvironment is all that a child has of an environment. Each variable
// more would be one that sends a program to another file: MKE2FS_CONFIG,
// BLKID_FILE, LIBMOUNT_FSTAB, LD_PRELOAD, PASSWD_FILE of mount.cifs. A FUSE
// program takes a proxy from its configuration, and nothing from root's home.
func childEnvironment() []string {
	return []string{"LC_ALL=C", "PATH=" + searchPath, "HOME=/nonexistent"}
}

func lookIn(path, name string) (string, error) {
	for dir := range strings.SplitSeq(path, ":") {
		if dir == "" {
			continue
		}
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path, nil
		}
	}
	return "", utilexec.ErrExecutableNotFound
}

// emptyDirectory opens a directory for a program to work in. It is empty,
// nothing can be made in it, and it needs no cleanup.
//
// getcwd(3) fails in a tmpfs that is mounted nowhere, which shells complain of. So that
// is for a kernel without terminals only.
func emptyDirectory(program string) (*os.File, error) {
	dir, err := emptyOfKernel(emptyProc)
	if err == nil {
		return dir, nil
	}
	if dir, next := detachedDirectory(); next == nil {
		return dir, nil
	}
	return nil, fmt.Errorf("find an empty directory to run %s in: %w", program, err)
}

func detachedDirectory() (*os.File, error) {
	fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fs)
	if err := unix.FsconfigCreate(fs); err != nil {
		return nil, err
	}
	const attributes = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, attributes)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "empty directory"), nil
}

// emptyProc is empty in every kernel: what was in it has gone, and the
// directory was kept for programs that look for it (fs/proc/proc_tty.c).
const emptyProc = "/proc/tty/ldisc"

func emptyOfKernel(path string) (*os.File, error) {
	dir, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(dir.Fd()), &st); err != nil {
		dir.Close()
		return nil, err
	}
	if st.Type != unix.PROC_SUPER_MAGIC {
		dir.Close()
		return nil, fmt.Errorf("%s is not of the kernel", path)
	}
	if names, err := dir.Readdirnames(1); !errors.Is(err, io.EOF) || len(names) > 0 {
		dir.Close()
		return nil, fmt.Errorf("%s is not empty", path)
	}
	return dir, nil
}

// keepDescriptors has no child get a descriptor that this process was started
// with; Go's own are not inherited anyway.
func keepDescriptors() error {
	if unix.CloseRange(firstFile, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return nil
	}
	open, err := os.ReadDir("/proc/self/fd") // Linux before 5.11
	if err != nil {
		return fmt.Errorf("list open files: %w", err)
	}
	for _, entry := range open {
		if fd, err := strconv.Atoi(entry.Name()); err == nil && fd >= firstFile {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}
