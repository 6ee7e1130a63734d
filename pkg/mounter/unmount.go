package mounter

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

const (
	// A mount is often busy for a moment, while a dying process closes files.
	busyWait = 2 * time.Second
	// An unmount that takes longer than this waits for a server that does
	// not answer, and is forced.
	hungWait = 20 * time.Second
	// Nobody stacks more mounts than this on purpose.
	maxStacked = 1000
)

// Unmount removes everything that is mounted at t: stacked mounts one after
// the other, mounts below it first. What is not mounted is success, and so is
// a target that does not exist. It never looks at what is mounted, so it is
// the same for a dead filesystem (ENOTCONN, ESTALE, EIO) as for a healthy
// one; one that hangs is forced off and detached after 20 s or half of the
// time that ctx leaves.
//
// A mount that is in use stays, and the error names who uses it.
func (m *Mounter) Unmount(ctx context.Context, t *Target) error {
	for range maxStacked {
		err := m.unmountOnce(ctx, t)
		if isNotMounted(err) {
			return nil
		}
		if err != nil {
			return &Error{Op: "unmount", Target: t.path, Err: err}
		}
		m.log().Debug("unmounted", "target", t.path)
	}
	return &Error{Op: "unmount", Target: t.path, Err: errors.New("somebody keeps mounting there")}
}

// isNotMounted: EINVAL says that the path is no mount point. ENOTDIR and ELOOP
// cannot be mount points of ours.
func isNotMounted(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT)
}

func (m *Mounter) unmountOnce(ctx context.Context, t *Target) error {
	deadline := time.Now().Add(busyWait)
	for wait := time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		err := m.unmountBounded(ctx, t)
		if !errors.Is(err, unix.EBUSY) {
			return err
		}
		below, listErr := unmountBelow(t.path)
		if listErr != nil {
			return listErr
		}
		if below {
			continue
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return because(ErrBusy, "%v%s", err, describeUsers(t.path))
		}
		time.Sleep(wait)
	}
}

// unmountBounded calls umount2(2) and comes back in time even if that hangs.
// The goroutine that hangs then ends with the process or with the force.
func (m *Mounter) unmountBounded(ctx context.Context, t *Target) error {
	limit := hungWait
	if deadline, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(deadline)/2)
	}
	done := make(chan error, 1)
	go func() { done <- unix.Unmount(t.handle(), unix.UMOUNT_NOFOLLOW) }()
	select {
	case err := <-done:
		return err
	case <-time.After(limit):
	case <-ctx.Done():
	}
	m.log().Warn("unmount hangs; forcing it", "target", t.path)
	forced := make(chan error, 1)
	go func() { forced <- unix.Unmount(t.handle(), unix.MNT_FORCE|unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) }()
	select {
	case err := <-forced:
		return err
	case err := <-done:
		return err
	case <-time.After(limit):
		return fmt.Errorf("it hangs, and hangs when forced: the server or device behind it does not answer")
	}
}

// unmountBelow removes what is mounted below path, the deepest first, and
// reports whether there was anything. The target of an unmount is about to
// go, and with it all that others mounted inside.
func unmountBelow(path string) (bool, error) {
	infos, err := Mounts(mountinfo.PrefixFilter(path))
	if err != nil {
		return false, err
	}
	slices.Reverse(infos)
	any := false
	for _, i := range infos {
		if i.Mountpoint == path {
			continue
		}
		if err := unix.Unmount(i.Mountpoint, unix.UMOUNT_NOFOLLOW); err == nil {
			any = true
		}
	}
	return any, nil
}

// describeUsers names the processes that keep a mount busy, as far as /proc
// tells: it reads links only, so a hung filesystem does not hang it.
func describeUsers(path string) string {
	const most = 5
	var users []string
	entries, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return ""
	}
	for _, proc := range entries {
		if use := useOf(proc, path); use != "" {
			comm, _ := os.ReadFile(proc + "/comm")
			users = append(users, fmt.Sprintf("%s (pid %s, %s)", strings.TrimSpace(string(comm)), filepath.Base(proc), use))
			if len(users) == most {
				break
			}
		}
	}
	if len(users) == 0 {
		return "; no process of this node's view uses it: a mount in another mount namespace or a loop device on a file in it may"
	}
	return "; used by " + strings.Join(users, ", ")
}

func useOf(proc, path string) string {
	within := func(link string) bool {
		to, err := os.Readlink(link)
		return err == nil && (to == path || strings.HasPrefix(to, path+"/"))
	}
	for _, l := range [...]struct{ name, use string }{{"cwd", "working directory"}, {"root", "root"}, {"exe", "program"}} {
		if within(proc + "/" + l.name) {
			return l.use
		}
	}
	fds, _ := os.ReadDir(proc + "/fd")
	for _, fd := range fds {
		if within(proc + "/fd/" + fd.Name()) {
			return "open file"
		}
	}
	return ""
}
