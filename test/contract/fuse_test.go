package contract

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"
)

// fuseHelper is the program mount.fuse.fake SOURCE TARGET …: it mounts a FUSE
// file system and leaves its server behind, as such programs do. The server
// keeps stdout and stderr open, as it should not but as some do.
func fuseHelper(args []string) int {
	device, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", device.Fd())
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV)
	if len(args) > 3 && strings.HasPrefix(args[3], "ro") {
		flags |= unix.MS_RDONLY
	}
	if err := unix.Mount(args[0], args[1], "fuse.fake", flags, options); err != nil {
		fmt.Fprintln(os.Stderr, "mount:", err)
		return 32
	}
	server := exec.Command(self())
	server.Env = append(os.Environ(), envRole+"=fuse-server")
	server.Stdout, server.Stderr = os.Stdout, os.Stderr
	server.ExtraFiles = []*os.File{device}
	if err := server.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// Operations and structures of linux/fuse.h, as far as an empty directory needs
// them.
const (
	fuseForget      = 2
	fuseGetattr     = 3
	fuseStatfs      = 17
	fuseInit        = 26
	fuseReaddir     = 28
	fuseInterrupt   = 36
	fuseBatchForget = 42
)

// fuseServer answers for an empty directory until it is unmounted. The device
// is file descriptor 3.
func fuseServer([]string) int {
	request := make([]byte, 1<<20+4096)
	for {
		size, err := unix.Read(3, request)
		if err == unix.EINTR || err == unix.ENOENT {
			continue
		}
		if err != nil { // ENODEV: unmounted
			return 0
		}
		operation := binary.LittleEndian.Uint32(request[4:])
		unique := binary.LittleEndian.Uint64(request[8:])
		if size < 40 || operation == fuseForget || operation == fuseInterrupt || operation == fuseBatchForget {
			continue // there is no answer to these
		}
		body, errno := fuseAnswer(operation)
		reply := binary.LittleEndian.AppendUint32(nil, uint32(16+len(body)))
		reply = binary.LittleEndian.AppendUint32(reply, uint32(-int32(errno)))
		reply = binary.LittleEndian.AppendUint64(reply, unique)
		_, _ = unix.Write(3, append(reply, body...)) // the caller may be gone
	}
}

func fuseAnswer(operation uint32) ([]byte, unix.Errno) {
	little := binary.LittleEndian
	switch operation {
	case fuseInit:
		body := make([]byte, 64) // fuse_init_out
		little.PutUint32(body[0:], 7)
		little.PutUint32(body[4:], 31)
		little.PutUint32(body[20:], 4096) // max_write
		return body, 0
	case fuseGetattr:
		body := make([]byte, 16+88) // fuse_attr_out
		little.PutUint64(body[16:], 1)
		little.PutUint32(body[16+60:], unix.S_IFDIR|0o755)
		little.PutUint32(body[16+64:], 2)
		return body, 0
	case fuseStatfs:
		return make([]byte, 80), 0
	case fuseReaddir:
		return nil, 0
	}
	return nil, unix.ENOSYS
}
