// Package lease is what the control plane's part of a driver notes beside
// itself: which node has which disk. There is one small dot-file for each
// volume and node in the driver's directory; the kubelet's prober ignores
// dot-files. docs/adr/0006 says why a lease expires.
package lease

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

// Term is how long a lease holds: five of kube-controller-manager's rounds of
// isattached (60 s, pkg/controller/volume/attachdetach/config/v1alpha1/defaults.go,
// Kubernetes v1.37.1), which renew it. One that was not renewed for so long
// belongs to a control plane that is gone, and must not keep a volume from its
// pod.
const Term = 5 * time.Minute

const (
	prefix = ".attached-"
	suffix = ".json"
)

// A Lease says that a node has a disk.
type Lease struct {
	// Disk names what must not be attached twice; a hash will do, and says
	// nothing to those who may read the file.
	Disk     string    `json:"disk"`
	Volume   string    `json:"volume"`
	Node     string    `json:"node"`
	ReadOnly bool      `json:"readOnly"`
	Renewed  time.Time `json:"renewed"`
}

// A Conflict is the error of Take when another node has the disk. Its text
// goes on where the name of the disk ends.
type Conflict struct{ Mine, Other Lease }

func (c *Conflict) Error() string {
	return fmt.Sprintf("attached to node %s (as volume %s, confirmed %s ago) and cannot be attached to node %s as well; it has to be detached there first",
		c.Other.Node, c.Other.Volume, time.Since(c.Other.Renewed).Round(time.Second), c.Mine.Node)
}

func (l Lease) conflicts(other Lease) bool {
	return l.Disk == other.Disk && l.Node != other.Node && (!l.ReadOnly || !other.ReadOnly) && fresh(l.Renewed)
}

// fresh is true for the future too, within bounds: clocks are set.
func fresh(t time.Time) bool { return time.Since(t).Abs() < Term }

// IsFile reports whether path is a file of this package.
func IsFile(path string) bool { return strings.HasPrefix(filepath.Base(path), prefix) }

// Held reports whether path is a lease that still holds.
func Held(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && IsFile(path) && strings.HasSuffix(path, suffix) && fresh(info.ModTime())
}

// Dir is the directory of a driver, where its leases lie.
type Dir string

// path is made of a hash because names of volumes and nodes may hold anything.
func (d Dir) path(volume, node string) string {
	h := fnv.New128a()
	_, _ = fmt.Fprintf(h, "%q %q", volume, node)
	return filepath.Join(string(d), fmt.Sprintf("%s%x%s", prefix, h.Sum(nil), suffix))
}

// lock keeps others from reading and writing leases. It fails if the
// directory cannot be used: a disk attached twice is worse than one attached
// late.
func (d Dir) lock(ctx context.Context) (*mounter.Lock, error) {
	f, err := mounter.LockName(ctx, filepath.Join(string(d), prefix+"lock"), "leases")
	if err != nil {
		return nil, fmt.Errorf("cannot note who has the volume in %s, which attach and detach need: %w", d, err)
	}
	return f, nil
}

// Take notes that mine.Node has mine.Disk, or renews the note. The error is a
// *Conflict if another node has the disk and one of the two writes. Leases
// that cannot be read are left out, and returned.
func (d Dir) Take(ctx context.Context, mine Lease) (broken []error, err error) {
	lock, err := d.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	files, err := filepath.Glob(filepath.Join(string(d), prefix+"*"+suffix))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		other, err := read(file)
		if err != nil {
			broken = append(broken, fmt.Errorf("lease %s: %w", file, err))
			continue
		}
		if other.conflicts(mine) {
			return broken, &Conflict{Mine: mine, Other: other}
		}
	}
	mine.Renewed = time.Now().UTC()
	return broken, d.write(mine)
}

func read(file string) (l Lease, err error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return l, err
	}
	return l, json.Unmarshal(data, &l)
}

// write replaces a lease in one step; the lock keeps others away.
func (d Dir) write(l Lease) error {
	data, err := json.Marshal(l)
	if err != nil {
		return err
	}
	temporary := d.temporary()
	if err := os.WriteFile(temporary, append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("note who has the volume: %w", err)
	}
	if err := os.Rename(temporary, d.path(l.Volume, l.Node)); err != nil {
		return fmt.Errorf("note who has the volume: %w", err)
	}
	return nil
}

// temporary is the one name that a lease has before its own, so that a killed
// process leaves no more than one such file.
func (d Dir) temporary() string { return filepath.Join(string(d), prefix+"new") }

// Drop forgets that a node has a volume. One that is not known is gone.
func (d Dir) Drop(ctx context.Context, volume, node string) error {
	lock, err := d.lock(ctx)
	if errors.Is(err, unix.EROFS) || errors.Is(err, fs.ErrNotExist) {
		return nil // no lease can be there
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	_ = os.Remove(d.temporary()) // of a Take that was killed; the lock is ours now
	if err := os.Remove(d.path(volume, node)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget who had the volume: %w", err)
	}
	return nil
}
