package bridge

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/flex2csi/flex2csi/internal/kubeletdir"
	"github.com/flex2csi/flex2csi/internal/lifecycle"
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/internal/volumelog"
)

// Restore loads the records of an earlier run. It makes uncertain what may have changed
// in between, so that the next operation checks it: after a reboot all mounts, otherwise
// the steps that were under way.
func (b *Bridge) Restore(records []*volstate.Record) {
	for _, r := range records {
		v := b.registry.volume(r.Key())
		v.record = r
		lifecycle.Reset(r, time.Now())
		if d, err := b.driverOf(r); err == nil && d.Endpoints != nil {
			r.Endpoints = d.Endpoints
		} else if err != nil && r.Recovered {
			r.Endpoints = nil // where it was staged since may be in the configuration alone
		}
		if r.Recovered {
			subject(r, "").Logger(b.log()).Warn("the last version of a record cannot be read; the version before is compared with the mount table")
			b.doubt(r)
		}
		if r.BootID != b.BootID {
			lifecycle.Rebooted(r, time.Now())
		} else {
			lifecycle.Recognize(r, b.node().mounted)
		}
		v.inherited = r.Uncertain()
		b.registry.show(v)
	}
	b.findLost()
	b.guardTargets(records)
}

// guardTargets brings what an earlier version has published without a guard behind one, and
// mounts the guards for what may still be under way. After a reboot nothing is.
func (b *Bridge) guardTargets(records []*volstate.Record) {
	targets := map[string]volumelog.Subject{}
	for _, r := range records {
		for dir, t := range r.Targets {
			if r.BootID == b.BootID && t.TargetPath != "" && t.Publish != volstate.None {
				targets[t.TargetPath] = subject(r, dir)
			}
		}
	}
	for _, dirs := range b.registry.lost {
		for _, dir := range dirs {
			if target, err := kubeletdir.TargetPath(dir); err == nil && b.node().mounted(target) {
				targets[target] = volumelog.OfDir(dir)
			}
		}
	}
	for target, s := range targets {
		if !b.node().there(kubeletdir.Guard(target)) {
			continue
		}
		if err := b.Mounts.Guard(volumelog.With(b.Context, s), target); err != nil {
			s.Logger(b.log()).Warn("a target path could not be guarded; if its pod is removed, a kubelet before 1.30 may delete what is in the volume", "targetPath", target, "error", err)
		}
	}
}

// doubt takes up a record that lacks what was done last.
func (b *Bridge) doubt(r *volstate.Record) {
	stagingPath := ""
	if d := b.Drivers.of(r.FlexDriver, r.Driver); d != nil {
		stagingPath = b.node().stagingPath(r.Key())
	}
	lifecycle.Doubt(r, stagingPath, b.discover(r), b.node().mounted)
}

// BootIDFile is where the kernel says which boot this is (random(4)).
const BootIDFile = "/proc/sys/kernel/random/boot_id"

// BootID tells this boot of the node from others.
func BootID(file string) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	id := strings.TrimSpace(string(data))
	if id == "" || len(id) > 128 {
		return "", fmt.Errorf("%s has %d bytes in it, which is no boot id", file, len(id))
	}
	return id, nil
}
