package crash

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// The only filesystem with a mount program that needs no second machine is one
// in user space. This test binary is its program: mount(8) calls
// mount.fuse.crashfs in /sbin, which mounts and leaves a server behind.
const (
	fuseType   = "fuse.crashfs"
	fuseSource = "store"
	// envRole makes the test binary the program or the server.
	envRole     = "FLEX_CRASH_ROLE"
	roleProgram = "program"
	roleServer  = "server"
)

// layMountProgram puts mount.fuse.crashfs into /sbin, in the mount namespace
// that the tests have for themselves. dir is on a tmpfs, which can be a layer.
func layMountProgram(dir string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	sbin, err := filepath.EvalSymlinks("/sbin")
	if err != nil {
		return err
	}
	upper, work := filepath.Join(dir, "sbin"), filepath.Join(dir, "sbin-work")
	script := fmt.Sprintf("#!/bin/sh\n%s=%s exec %s \"$@\"\n", envRole, roleProgram, self)
	if err := errors.Join(os.Mkdir(upper, 0o755), os.Mkdir(work, 0o755), os.WriteFile(filepath.Join(upper, "mount."+fuseType), []byte(script), 0o755)); err != nil {
		return err
	}
	return unix.Mount("overlay", sbin, "overlay", 0, fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", sbin, upper, work))
}

// play returns the exit status of a role.
func play(role string, args []string) int {
	do := serveFUSE
	if role == roleProgram {
		do = func() error { return mountFUSE(args) }
	}
	if err := do(); err != nil {
		fmt.Fprintln(os.Stderr, "mount."+fuseType+":", err)
		return 1
	}
	return 0
}

// mountFUSE is called with SOURCE TARGET -o OPTIONS.
func mountFUSE(args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("called with %q", args)
	}
	device, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer device.Close()
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV)
	if len(args) > 3 && strings.Contains(","+args[3]+",", ",ro,") {
		flags |= unix.MS_RDONLY
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", device.Fd())
	if err := unix.Mount(args[0], args[1], fuseType, flags, options); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	server := exec.Command(self)
	server.Env = append(os.Environ(), envRole+"="+roleServer)
	server.ExtraFiles = []*os.File{device}
	return server.Start()
}

// serveFUSE answers for an empty directory until it is unmounted. The device
// is file descriptor 3.
func serveFUSE() error {
	request := make([]byte, 1<<20+4096)
	for {
		n, err := unix.Read(3, request)
		switch {
		case errors.Is(err, unix.ENODEV):
			return nil // unmounted
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ENOENT):
			continue
		case err != nil:
			return err
		}
		if reply := answerFUSE(request[:n]); reply != nil {
			_, _ = unix.Write(3, reply) // who asked may be gone
		}
	}
}

// answerFUSE returns the answer to a request (linux/fuse.h), as far as an empty
// directory needs it; nil if there is to be none.
func answerFUSE(request []byte) []byte {
	const lookup, forget, getattr, statfs, begin, readdir, interrupt, batchForget = 1, 2, 3, 17, 26, 28, 36, 42
	order := binary.NativeEndian
	var body []byte
	errno := unix.Errno(0)
	switch order.Uint32(request[4:]) {
	case forget, interrupt, batchForget:
		return nil
	case begin: // struct fuse_init_out: version 7.31
		body = make([]byte, 64)
		order.PutUint32(body[0:], 7)
		order.PutUint32(body[4:], 31)
		order.PutUint32(body[20:], 4096)
	case getattr: // struct fuse_attr_out: a directory
		body = make([]byte, 16+88)
		order.PutUint64(body[16:], 1)
		order.PutUint32(body[16+60:], unix.S_IFDIR|0o755)
		order.PutUint32(body[16+64:], 2)
	case statfs:
		body = make([]byte, 80)
	case readdir:
	case lookup:
		errno = unix.ENOENT
	default:
		errno = unix.ENOSYS
	}
	reply := order.AppendUint32(nil, uint32(16+len(body)))
	reply = order.AppendUint32(reply, uint32(-int32(errno)))
	reply = append(reply, request[8:16]...)
	return append(reply, body...)
}
