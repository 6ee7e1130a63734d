package escape

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// spoil makes what an attacker may have put where he may write: into a volume of his,
// and into directories and next to images that pods of his share.
func (w *world) spoil() error {
	own := w.images + "/" + mine
	var errs []error
	for _, dir := range []string{own, w.scratch, w.directories + "/shared", w.directories + "/" + mine} {
		errs = append(errs, w.links(dir), w.specials(dir))
	}
	evil := "#!/bin/sh\ncat " + w.host + "/shadow\n"
	for _, name := range evilPrograms() {
		errs = append(errs, os.WriteFile(w.scratch+"/bin/"+name, []byte(evil), 0o755))
	}
	for name, to := range map[string]string{"text": w.host + "/shadow", "null": "/dev/null", "image": w.host + "/host.img", "far": "../devices/host", "fd": "/proc/self/fd/3"} {
		errs = append(errs, os.Symlink(to, w.devicesDir+"/"+name))
	}
	return errors.Join(append(errs, w.ext4(w.scratch+"/image.img"), w.hang(own+"/hang"), w.hang(w.directories+"/shared/hang"))...)
}

func evilPrograms() []string {
	return []string{"evil", "mount.evil", "mkfs.evil", "fsck.evil", "mount.fuse.evil", "mount.nfs4", "blkid.evil"}
}

func (w *world) links(dir string) error {
	var errs []error
	for name, to := range map[string]string{
		"link-host.img": w.host + "/host.img", "link-theirs.img": w.images + "/" + theirs + "/theirs.img", "link-up.img": "../" + theirs + "/theirs.img",
		"link-shadow.img": w.host + "/shadow", "link-device.img": w.hostDevice, "link-proc.img": "/proc/self/environ", "link-nowhere.img": w.host + "/made.img",
		"link-scratch.img": w.scratch + "/image.img", "link-loop.img": "link-loop.img", "link-memory.img": "/proc/self/fd/1",
		"link-dir": w.host + "/dir", "link-etc": "/etc", "link-root": "/", "link-theirs": "../" + theirs, "link-pod": w.otherVolume(), "link-cwd": "/proc/self/cwd",
		"link-self": ".", "link-own.img": "old-2.img",
	} {
		errs = append(errs, os.Symlink(to, dir+"/"+name))
	}
	return errors.Join(errs...)
}

func (w *world) specials(dir string) error {
	minor, err := strconv.Atoi(strings.TrimPrefix(w.hostDevice, "/dev/loop"))
	return errors.Join(err,
		unix.Mkfifo(dir+"/fifo.img", 0o666),
		unix.Mknod(dir+"/socket.img", unix.S_IFSOCK|0o666, 0),
		unix.Mknod(dir+"/node.img", unix.S_IFBLK|0o666, int(unix.Mkdev(loopMajor, uint32(minor)))),
		unix.Mknod(dir+"/memory.img", unix.S_IFCHR|0o666, int(unix.Mkdev(1, 1))),
		os.MkdirAll(dir+"/dir.img/sub", 0o755),
		os.WriteFile(dir+"/empty.img", nil, 0o666),
		os.WriteFile(dir+"/text.img", []byte("#!/bin/sh\n"), 0o777),
		os.Link(dir+"/text.img", dir+"/hard.img"),
	)
}

// hangs: the guard must not look there itself.
func hangs(path string) bool { return strings.Contains(path, "/hang") }

// hang mounts a filesystem of FUSE that never answers.
func (w *world) hang(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open /dev/fuse: %w", err)
	}
	err = unix.Mount("hang", dir, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fd))
	w.cleanups = append(w.cleanups, func() { _ = unix.Unmount(dir, unix.MNT_DETACH); unix.Close(fd) })
	return err
}

// flips are the names that swap has lead to one thing and to another, by turns.
func (w *world) flips() map[string][2]string {
	own := w.images + "/" + mine
	return map[string][2]string{
		own + "/flip.img":                  {own + "/old-1.img", w.host + "/host.img"},
		own + "/flip-theirs.img":           {"old-1.img", "../" + theirs + "/theirs.img"},
		own + "/flip":                      {".", "../" + theirs},
		w.directories + "/shared/flip":     {"sub", w.host + "/dir"},
		w.directories + "/shared/sub/flip": {"..", w.otherVolume()},
		w.devicesDir + "/flip":             {"disk", "host"},
	}
}

// swap has a name lead to one thing and the other all the time. The result ends that,
// and removes the name.
func (w *world) swap(name string) (stop func()) {
	to := w.flips()[name]
	other := name + ".other"
	_ = os.Symlink(to[0], name)
	_ = os.Symlink(to[1], other)
	ended := make(chan bool)
	var wait sync.WaitGroup
	wait.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-ended:
				return
			default:
			}
			_ = unix.Renameat2(unix.AT_FDCWD, name, unix.AT_FDCWD, other, unix.RENAME_EXCHANGE)
			time.Sleep(time.Duration(n%7) * 3 * time.Microsecond)
		}
	})
	return func() {
		close(ended)
		wait.Wait()
		os.Remove(name)
		os.Remove(other)
	}
}
