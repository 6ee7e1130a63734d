//go:build linux

package statedir

// This file keeps the attachment locks of a driver in the control plane:
// which node has which disk. Each volume and node has one small dot-file in the
// driver's directory; the kubelet's prober ignores dot-files. docs/adr/0006 says
// why a lock expires.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/pkg/mounter"
)

// term is how long a lock is valid without renewal: five rounds in which
// kube-controller-manager calls isattached, which renews the lock (60 s,
// pkg/controller/volume/attachdetach/config/v1alpha1/defaults.go, Kubernetes
// v1.37.1). An expired lock is from a control plane that no longer exists, and does
// not keep a volume from its pod.
const term = 5 * time.Minute

const (
	prefix           = ".attached-"
	attachLockSuffix = ".json"
)

// A AttachLock says that a disk is attached to a node.
type AttachLock struct {
	// Disk identifies what must not be attached twice. A hash is enough, and tells
	// readers of the file nothing.
	Disk     string    `json:"disk"`
	Volume   string    `json:"volume"`
	Node     string    `json:"node"`
	ReadOnly bool      `json:"readOnly"`
	Renewed  time.Time `json:"renewed"`
}

// A AttachConflict is the error of Acquire when the disk is attached to another node. Its
// text follows the name of the disk.
type AttachConflict struct{ Mine, Other AttachLock }

func (c *AttachConflict) Error() string {
	return fmt.Sprintf("attached to node %s (as volume %s, confirmed %s ago) and cannot be attached to node %s as well; detach it there first",
		c.Other.Node, c.Other.Volume, time.Since(c.Other.Renewed).Round(time.Second), c.Mine.Node)
}

func (l AttachLock) conflicts(other AttachLock) bool {
	return l.Disk == other.Disk && l.Node != other.Node && (!l.ReadOnly || !other.ReadOnly) && fresh(l.Renewed)
}

// fresh accepts times in the near future: clocks are adjusted.
func fresh(t time.Time) bool { return time.Since(t).Abs() < term }

// IsAttachLock reports whether path is a file of this package.
func IsAttachLock(path string) bool { return strings.HasPrefix(filepath.Base(path), prefix) }

// AttachLockHeld reports whether path is a lock that has not expired.
func AttachLockHeld(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && IsAttachLock(path) && strings.HasSuffix(path, attachLockSuffix) && fresh(info.ModTime())
}

// AttachLocks is the directory of a driver, which has its attachment locks.
type AttachLocks string

// path has a hash because names of volumes and nodes may contain any character.
func (d AttachLocks) path(volume, node string) string {
	h := fnv.New128a()
	_, _ = fmt.Fprintf(h, "%q %q", volume, node)
	return filepath.Join(string(d), fmt.Sprintf("%s%x%s", prefix, h.Sum(nil), attachLockSuffix))
}

// exclusive keeps other processes from reading and writing attachment locks. It fails
// if the directory cannot be used: a disk attached twice is worse than one attached
// late.
func (d AttachLocks) exclusive(ctx context.Context) (*mounter.Lock, error) {
	f, err := mounter.LockName(ctx, filepath.Join(string(d), prefix+"lock"), "attachment locks")
	if err != nil {
		return nil, fmt.Errorf("attach and detach need attachment locks in %s: %w", d, err)
	}
	return f, nil
}

// Acquire creates or renews the lock of mine.Disk for mine.Node. The error is a
// *Conflict if another node has the disk and one of the two writes. Locks that cannot
// be read do not conflict; broken has an error for each.
func (d AttachLocks) Acquire(ctx context.Context, mine AttachLock) (broken []error, err error) {
	lock, err := d.exclusive(ctx)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	files, err := filepath.Glob(filepath.Join(string(d), prefix+"*"+attachLockSuffix))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		other, err := readAttachLock(file)
		if err != nil {
			broken = append(broken, fmt.Errorf("attachment lock %s: %w", file, err))
			continue
		}
		if other.conflicts(mine) {
			return broken, &AttachConflict{Mine: mine, Other: other}
		}
	}
	mine.Renewed = time.Now().UTC()
	return broken, d.write(mine)
}

func readAttachLock(file string) (l AttachLock, err error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return l, err
	}
	return l, json.Unmarshal(data, &l)
}

// write replaces a lock file in one step. The caller has exclusive access.
func (d AttachLocks) write(l AttachLock) error {
	data, err := json.Marshal(l)
	if err != nil {
		return err
	}
	temporary := d.temporary()
	if err := os.WriteFile(temporary, append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("write the attachment lock: %w", err)
	}
	if err := os.Rename(temporary, d.path(l.Volume, l.Node)); err != nil {
		return fmt.Errorf("write the attachment lock: %w", err)
	}
	return nil
}

// temporary is the file that becomes a lock by renaming. It is the same for all, so
// that killed processes leave no more than one such file.
func (d AttachLocks) temporary() string { return filepath.Join(string(d), prefix+"new") }

// Release removes the lock of a volume and node. It is no error if there is none.
func (d AttachLocks) Release(ctx context.Context, volume, node string) error {
	lock, err := d.exclusive(ctx)
	if errors.Is(err, unix.EROFS) || errors.Is(err, fs.ErrNotExist) {
		return nil // no lock can exist there
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	_ = os.Remove(d.temporary()) // of an Acquire that was killed; access is exclusive now
	if err := os.Remove(d.path(volume, node)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the attachment lock: %w", err)
	}
	return nil
}
