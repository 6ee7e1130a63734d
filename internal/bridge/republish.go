package bridge

import (
	"context"
	"time"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// republishEvery is about as often as the kubelet looks at a pod anew
// (pkg/kubelet/kubelet.go, syncFrequency).
const republishEvery = time.Minute

const republishCommand flex.Command = "republish"

// republish repeats NodePublishVolume for a driver that refreshes what is in
// its volumes that way. An error leaves the mount as it is
// (kubernetes/kubernetes#121271).
func (b *Bridge) republish(r *volstate.Record) {
	d, err := b.driverOf(r)
	if err != nil {
		return
	}
	if !b.republishes(d) {
		return
	}
	for dir, t := range r.Targets {
		if !t.Bound || t.Dead != "" || !b.due(r.Key(), dir, republishEvery) {
			continue
		}
		b.doLater(r, operation{command: republishCommand, dir: dir}, "repeat NodePublishVolume; what is mounted stays as it is", func(v *volume) error {
			return b.publishAgain(d, v, dir)
		})
	}
}

// republishes does not wait for what is not known yet: Reconcile looks at all
// volumes.
func (b *Bridge) republishes(d *FlexDriver) bool {
	now, cancel := context.WithCancel(b.Context)
	cancel()
	policy, err := d.policy(now)
	return err == nil && policy.Republish
}

// due reports whether it is time to do something again, and notes it.
func (b *Bridge) due(key csivol.Key, what string, every time.Duration) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	v := b.volumes[key]
	if v == nil || time.Since(v.last[what]) < every {
		return false
	}
	if v.last == nil {
		v.last = map[string]time.Time{}
	}
	v.last[what] = time.Now()
	return true
}

func (b *Bridge) publishAgain(d *FlexDriver, v *volume, dir string) error {
	t := v.record.Targets[dir]
	if t == nil || !t.Bound {
		return nil
	}
	secrets, err := d.staticSecrets(v.ctx)
	if err != nil {
		return err
	}
	s, err := b.setup(d, v, volumeOf(v.record, t, secrets))
	if err != nil {
		return err
	}
	if err := s.requireKnown(dir); err != nil {
		return err
	}
	if v.record.PublishContextIncomplete() {
		if err := b.attachAgain(s); err != nil {
			return err
		}
	}
	return b.publishAt(s, t, target(t, dir))
}
