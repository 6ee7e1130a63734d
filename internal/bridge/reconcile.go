package bridge

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/kubeletdir"
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// DefaultGrace exceeds the kubelet's longest pause between two tries (2 min
// 2 s) and its wait for a pod's volumes (2 min 3 s).
const DefaultGrace = 5 * time.Minute

func (b *Bridge) grace() time.Duration {
	if b.Grace <= 0 {
		return DefaultGrace
	}
	return b.Grace
}

// Restore takes up the records of an earlier run. What happened in between is
// put in doubt, which makes the next operation look: after a reboot all that
// is mounted, otherwise what was under way.
func (b *Bridge) Restore(records []*volstate.Record) {
	for _, r := range records {
		v := b.volume(r.Key())
		v.record = r
		if r.BootID != b.BootID {
			rebooted(r)
		}
		b.publish(v)
	}
}

// rebooted: mounts are gone, attachments are not. The kubelet calls mount
// again for what pods still want, and unmount for what they do not.
func rebooted(r *volstate.Record) {
	if r.Stage == volstate.Done {
		r.Stage = volstate.Doing
	}
	for _, t := range r.Targets {
		if t.Publish == volstate.Done {
			t.Publish = volstate.Doing
		}
		t.Bound = false
		t.Since = time.Now().UTC()
	}
}

// reconcileCommand names the operation of the reconciler; no callout does.
const reconcileCommand flex.Command = "reconcile"

// Reconcile looks once at all volumes and undoes what nobody wants any more:
// targets of pods that are gone, and operations that were given up half-way.
// It does not wait for operations that it starts; ctx bounds the looking.
func (b *Bridge) Reconcile(ctx context.Context) {
	for _, r := range b.Records() {
		if ctx.Err() != nil {
			return
		}
		if b.busy(r.Key()) || !b.unwanted(r) {
			continue
		}
		go func() {
			err := b.do(b.Context, r.Key(), operation{command: reconcileCommand}, b.undoUnwanted)
			if err != nil {
				b.log().Warn("a volume that nobody wants any more could not be undone; it will be tried again", "volumeHandle", r.Handle, "csiDriver", r.Driver, "error", err)
			}
		}()
	}
}

// busy reports whether an operation is under way on a volume.
func (b *Bridge) busy(key csivol.Key) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	v := b.volumes[key]
	return v != nil && len(v.ops) > 0
}

func (b *Bridge) unwanted(r *volstate.Record) bool {
	for dir, t := range r.Targets {
		if b.targetUnwanted(t, dir) {
			return true
		}
	}
	return len(r.Targets) == 0 && b.volumeUnwanted(r)
}

// targetUnwanted: the pod's directory is gone, or nobody came back for a
// set-up or tear-down that was not finished.
func (b *Bridge) targetUnwanted(t *volstate.Target, dir string) bool {
	if time.Since(t.Since) < b.grace() {
		return false
	}
	if b.podGone(dir) {
		return true
	}
	if !t.Bound {
		return true
	}
	mounted, err := b.Mounts.Mounted(dir)
	return err == nil && t.Private != "" && !mounted
}

// volumeUnwanted: no pod has it, and it is not where the kubelet would still
// call unmountdevice or detach for it.
func (b *Bridge) volumeUnwanted(r *volstate.Record) bool {
	if time.Since(r.Changed) < b.grace() {
		return false
	}
	if r.Device != "" {
		mounted, err := b.Mounts.Mounted(r.Device)
		return err == nil && !mounted
	}
	if r.Stage != volstate.None {
		return true
	}
	return r.Attachment != byControlPlane || r.Attach == volstate.Undoing
}

// podGone reports that the kubelet has removed the pod's directory.
func (b *Bridge) podGone(dir string) bool {
	place, err := kubeletdir.Parse(dir)
	if err != nil || place.PodUID == "" {
		return false
	}
	there, err := b.dirs().Exists(filepath.Join(place.Root, "pods", place.PodUID))
	return err == nil && !there
}

// undoUnwanted looks again, now that nothing else works on the volume.
func (b *Bridge) undoUnwanted(v *volume) error {
	d, err := b.driverOf(v.record)
	if err != nil {
		return err
	}
	for dir, t := range v.record.Targets {
		if !b.targetUnwanted(t, dir) {
			continue
		}
		v.log.Info("undoing a target that nobody wants any more", "dir", dir, "publish", string(t.Publish))
		if err := b.release(d, v, csivol.Secrets{}, dir); err != nil {
			return err
		}
	}
	if len(v.record.Targets) > 0 || !b.volumeUnwanted(v.record) {
		return nil
	}
	v.log.Info("undoing a volume that nobody wants any more")
	if v.record.Device != "" {
		return b.releaseDevice(d, v, v.record.Device)
	}
	if err := b.unstage(d, v); err != nil {
		return err
	}
	return b.detachFrom(d, v, csivol.Secrets{})
}

// Bury does what a tombstone says: a directory was unmounted while this
// process was not there to hear of it.
func (b *Bridge) Bury(ctx context.Context, command flex.Command, dir string) error {
	key, ok := b.find(dir)
	if !ok {
		if command == flex.CommandUnmountDevice {
			return b.Mounts.Unmount(ctx, dir)
		}
		return b.tidy(ctx, dir)
	}
	return b.do(ctx, key, operation{command, dir}, func(v *volume) error {
		d, err := b.driverOf(v.record)
		if err != nil {
			return err
		}
		if command == flex.CommandUnmountDevice {
			return b.releaseDevice(d, v, dir)
		}
		return b.release(d, v, csivol.Secrets{}, dir)
	})
}

// BootID is what tells one boot of the node from the next.
func BootID() (string, error) {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(data)), err
}
