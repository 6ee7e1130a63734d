package nodevolumes

import (
	"cmp"
	"context"
	"log/slog"
	"reflect"
	"time"

	"github.com/flex2csi/flex2csi/internal/volstate"
)

// A Teller writes the document of a node whenever it has changed. It is in
// nobody's way: no call waits for it, and what it cannot write it writes later.
type Teller struct {
	Node, BootID, Version string
	Records               func() []*volstate.Record
	// Staging is where the kubelet's CSI plugin would have a volume staged.
	Staging func(*volstate.Record) string
	// Kubelet reports whether the kubelet's CSI plugin has a volume for a pod, by
	// its UID, or for whichever, by none; nil: not known.
	Kubelet func(r *volstate.Record, pod string) bool
	// FlexDrivers are those that the daemon serves.
	FlexDrivers []string
	// Stages returns the CSI drivers that stage volumes; nil: not known.
	Stages func(ctx context.Context) []string
	// Retired reports that flex2csi is being taken away from the node: there is
	// nothing to tell any more; nil: it is not.
	Retired func() bool
	// Put writes the document. It has a deadline of its own.
	Put func(ctx context.Context, document string) error
	// Every is between two looks, and so the least between two writes; zero: 5 s.
	Every time.Duration
	// Pause is after a write that failed: as a rule nobody has allowed the nodes to
	// write, because nobody migrates; zero: 1 min.
	Pause time.Duration
	// Again is after how long what has not changed is written all the same: somebody
	// may have deleted it; zero: 2 min.
	Again time.Duration
	Log   *slog.Logger
}

// Run tells until ctx ends.
func (t *Teller) Run(ctx context.Context) {
	every, pause, again := cmp.Or(t.Every, 5*time.Second), cmp.Or(t.Pause, time.Minute), cmp.Or(t.Again, 2*time.Minute)
	var told *Document
	var said string // the last error that was logged
	for {
		wait := every
		now := t.document()
		if t.Retired != nil && t.Retired() {
			told = nil // all of it again if that is taken back
		} else if told == nil || !reflect.DeepEqual(told.Volumes, now.Volumes) || now.Written.Sub(told.Written) >= again {
			if err := t.put(ctx, now); err == nil {
				told, said = &now, ""
			} else {
				told, wait = nil, pause
				if err.Error() != said && ctx.Err() == nil {
					said = err.Error()
					t.Log.InfoContext(ctx, "the cluster is not told which volumes this node has; only flex2csi migrate wants to know", "error", err)
				}
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// document is what there is to tell now.
func (t *Teller) document() Document {
	records := t.Records()
	d := Of(t.Node, t.BootID, t.Version, time.Now(), records, t.Staging)
	d.FlexDrivers = t.FlexDrivers
	for _, r := range records {
		if v := d.Find(r.Driver, r.Handle); v != nil && t.Kubelet != nil {
			v.look(func(pod string) bool { return t.Kubelet(r, pod) })
		}
	}
	return d
}

func (t *Teller) put(ctx context.Context, d Document) error {
	if t.Stages != nil {
		d.StagingDrivers = t.Stages(ctx)
	}
	text, err := d.Encode()
	if err != nil {
		return err
	}
	return t.Put(ctx, text)
}
