package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/pkg/mounter"
)

// A lease says that a node has a disk. There is one small dot-file for each
// volume and node in the driver's directory, where the control plane's part
// of the driver runs; the prober ignores dot-files. It is a second net: the
// first is kube-controller-manager itself, and on shared storage the lock
// that a loop device keeps on its image (see mounter.AttachImage).
type lease struct {
	// Disk is what must not be attached twice: the option and its value.
	Disk     string    `json:"disk"`
	Volume   string    `json:"volume"`
	Node     string    `json:"node"`
	ReadOnly bool      `json:"readOnly"`
	Renewed  time.Time `json:"renewed"`
}

// leaseTerm is five of kube-controller-manager's rounds of isattached (60 s,
// pkg/controller/volume/attachdetach/config/v1alpha1/defaults.go). A lease
// that was not renewed for so long belongs to a control plane that is gone,
// and must not keep a volume from its pod.
const leaseTerm = 5 * time.Minute

const leasePrefix = ".attached-"

// path is made of a hash because names of volumes and nodes may hold anything.
func (b *Backend) leasePath(volume, node string) string {
	h := fnv.New128a()
	_, _ = fmt.Fprintf(h, "%q %q", volume, node)
	return filepath.Join(b.LeaseDir, fmt.Sprintf("%s%x.json", leasePrefix, h.Sum(nil)))
}

// takeLease notes that the call's node has the disk, unless another node has
// it and one of them writes.
func (b *Backend) takeLease(ctx context.Context, v *Volume, c *flex.Call) error {
	if b.LeaseDir == "" || !v.isDisk() {
		return nil
	}
	unlock, err := b.lockLeases(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	mine := lease{Disk: string(v.Kind) + " " + v.Source, Volume: c.VolumeName, Node: c.NodeName, ReadOnly: v.ReadOnly, Renewed: time.Now().UTC()}
	files, err := filepath.Glob(filepath.Join(b.LeaseDir, leasePrefix+"*.json"))
	if err != nil {
		return err
	}
	for _, file := range files {
		other, err := readLease(file)
		if err != nil {
			b.log().Warn("ignoring a broken lease", "file", file, "error", err)
			continue
		}
		if other.conflicts(mine) {
			return flex.Errorf(flex.CodeFailedPrecondition, "%s is attached to node %s (as volume %s, confirmed %s ago) and cannot be attached to node %s as well; it has to be detached there first", other.Disk, other.Node, other.Volume, time.Since(other.Renewed).Round(time.Second), mine.Node)
		}
	}
	return b.writeLease(mine)
}

func (l lease) conflicts(other lease) bool {
	age := time.Since(l.Renewed)
	return l.Disk == other.Disk && l.Node != other.Node && !(l.ReadOnly && other.ReadOnly) && age < leaseTerm && age > -leaseTerm
}

// lockLeases locks the leases, or fails if their directory cannot be used: a
// disk attached twice is worse than one attached late.
func (b *Backend) lockLeases(ctx context.Context) (unlock func(), err error) {
	f, err := mounter.LockName(ctx, filepath.Join(b.LeaseDir, leasePrefix+"lock"), "leases")
	if err != nil {
		return nil, flex.Errorf(flex.CodeUnavailable, "cannot note who has the volume in %s, which attach and detach need: %w", b.LeaseDir, err)
	}
	return func() { f.Close() }, nil
}

func readLease(file string) (l lease, err error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return l, err
	}
	return l, json.Unmarshal(data, &l)
}

// writeLease replaces a lease in one step; the lock keeps others away.
func (b *Backend) writeLease(l lease) error {
	data, err := json.Marshal(l)
	if err != nil {
		return err
	}
	path := b.leasePath(l.Volume, l.Node)
	temporary := filepath.Join(b.LeaseDir, leasePrefix+"new")
	if err := os.WriteFile(temporary, append(data, '\n'), 0o600); err != nil {
		return flex.Errorf(flex.CodeUnavailable, "note who has the volume: %w", err)
	}
	if err := os.Rename(temporary, path); err != nil {
		return flex.Errorf(flex.CodeUnavailable, "note who has the volume: %w", err)
	}
	return nil
}

// dropLease forgets that a node has a volume. One that is not known is gone.
func (b *Backend) dropLease(ctx context.Context, volume, node string) error {
	if b.LeaseDir == "" {
		return nil
	}
	unlock, err := b.lockLeases(ctx)
	if err != nil {
		if errors.Is(err, unix.EROFS) || errors.Is(err, fs.ErrNotExist) {
			return nil // no lease can be there
		}
		return err
	}
	defer unlock()
	if err := os.Remove(b.leasePath(volume, node)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return flex.Errorf(flex.CodeUnavailable, "forget who had the volume: %w", err)
	}
	return nil
}
