package mounter_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/test/testenv"
)

// A fuseServer is a filesystem in user space that can only say how full it is.
// It can die and fall silent, as the servers of network filesystems do.
type fuseServer struct {
	dev    *os.File
	path   string
	silent atomic.Bool
	done   chan struct{}
	// asked gets a value for each request that is left unanswered.
	asked chan uint32
}

// The requests of linux/fuse.h that are answered.
const (
	fuseGetattr = 3
	fuseStatfs  = 17
	fuseInit    = 26
	fuseReaddir = 28
	fuseDestroy = 38
)

// mountFUSE mounts a server, of type fuse, or fuseblk with a device as its
// source.
func mountFUSE(t *testing.T, path, fsType, source string) *fuseServer {
	t.Helper()
	testenv.Need(t, "fuse")
	// Not blocking, so that Close ends a Read.
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(source, path, fsType, 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", fd)); err != nil {
		t.Fatalf("mount %s: %v", fsType, err)
	}
	// Only now: before the mount there is nothing that could be polled.
	s := &fuseServer{dev: os.NewFile(uintptr(fd), "/dev/fuse"), path: path, done: make(chan struct{}), asked: make(chan uint32, 100)}
	t.Cleanup(s.die)
	go s.serve()
	return s
}

// die is what a crash of the server does.
func (s *fuseServer) die() {
	s.dev.Close()
	<-s.done
}

func (s *fuseServer) serve() {
	defer close(s.done)
	buf := make([]byte, 1<<20)
	for {
		n, err := s.dev.Read(buf)
		if err != nil {
			return
		}
		opcode := binary.NativeEndian.Uint32(buf[4:])
		if s.silent.Load() {
			s.asked <- opcode
			continue
		}
		s.answer(opcode, buf[:n])
	}
}

func (s *fuseServer) answer(opcode uint32, request []byte) {
	var body []byte
	var errno unix.Errno
	switch opcode {
	case fuseInit:
		body = make([]byte, 64)
		binary.NativeEndian.PutUint32(body[0:], 7)
		binary.NativeEndian.PutUint32(body[4:], 31)
		binary.NativeEndian.PutUint32(body[20:], 4096) // max_write
	case fuseStatfs:
		body = make([]byte, 80)
		binary.NativeEndian.PutUint64(body[0:], 1000)  // blocks
		binary.NativeEndian.PutUint32(body[40:], 4096) // bsize
		binary.NativeEndian.PutUint32(body[44:], 255)  // namelen
		binary.NativeEndian.PutUint32(body[48:], 4096) // frsize
	case fuseGetattr:
		body = make([]byte, 104)
		binary.NativeEndian.PutUint64(body[16:], 1)          // ino
		binary.NativeEndian.PutUint32(body[16+60:], 0o40755) // mode
		binary.NativeEndian.PutUint32(body[16+64:], 2)       // nlink
	case fuseReaddir, fuseDestroy: // an empty directory
	default:
		errno = unix.ENOSYS
	}
	reply := make([]byte, 16, 16+len(body))
	binary.NativeEndian.PutUint32(reply[0:], uint32(16+len(body)))
	binary.NativeEndian.PutUint32(reply[4:], uint32(-int32(errno)))
	copy(reply[8:16], request[8:16]) // unique
	_, _ = s.dev.Write(append(reply, body...))
}

// fallSilent stops all answers, after the kernel has begun to talk to it.
func (s *fuseServer) fallSilent(t *testing.T) {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(s.path, &st); err != nil || st.Blocks != 1000 {
		t.Fatalf("statfs of a healthy server: %v, %d blocks", err, st.Blocks)
	}
	s.silent.Store(true)
}

// hangOn has a thread of this process wait for the server, which makes the
// mount busy.
func (s *fuseServer) hangOn(t *testing.T) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		var st unix.Statfs_t
		_ = unix.Statfs(s.path, &st)
	}()
	<-s.asked
	t.Cleanup(func() { s.die(); <-done })
}
