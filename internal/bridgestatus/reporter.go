package bridgestatus

import (
	"cmp"
	"context"
	"log/slog"
	"reflect"
	"time"

	"github.com/flex2csi/flex2csi/internal/volstate"
)

// A NodeReporter writes the document of a node whenever it has changed. No call waits for
// it, and a write that failed is repeated later.
type NodeReporter struct {
	Node, BootID, Version string
	Records               func() []*volstate.Record
	// Staging returns the kubelet's own staging path of a volume.
	Staging func(*volstate.Record) string
	// Kubelet reports whether the kubelet's CSI plugin has a volume for the pod with
	// a UID, or for any pod if it is empty; nil: not known.
	Kubelet func(r *volstate.Record, pod string) bool
	// FlexDrivers are the drivers that the daemon serves.
	FlexDrivers []string
	// Stages returns the CSI drivers that stage volumes; nil: not known.
	Stages func(ctx context.Context) []string
	// Cordoned reports that flex2csi is being uninstalled from the node: nothing is
	// written any more; nil: it is not.
	Cordoned func() bool
	// Put writes the document. It has a deadline of its own.
	Put func(ctx context.Context, document string) error
	// Every is the interval of checks, and the minimum between two writes; zero: 5 s.
	Every time.Duration
	// Pause follows a write that failed. Nodes may write only where the roles for
	// migrations are installed; zero: 1 min.
	Pause time.Duration
	// Again is the interval of writes without a change, in case the ConfigMap was
	// deleted; zero: 2 min.
	Again time.Duration
	Log   *slog.Logger
}

// Run writes until ctx ends.
func (p *NodeReporter) Run(ctx context.Context) {
	every, pause, again := cmp.Or(p.Every, 5*time.Second), cmp.Or(p.Pause, time.Minute), cmp.Or(p.Again, 2*time.Minute)
	var reported *NodeVolumes
	var lastError string
	for {
		wait := every
		now := p.document()
		switch {
		case p.Cordoned != nil && p.Cordoned():
			reported = nil // write all of it when the cordon is undone
		case reported != nil && reflect.DeepEqual(reported.Volumes, now.Volumes) && now.Written.Sub(reported.Written) < again:
		default:
			err := p.put(ctx, now)
			if err == nil {
				reported, lastError = &now, ""
				break
			}
			reported, wait = nil, pause
			if err.Error() != lastError && ctx.Err() == nil {
				lastError = err.Error()
				p.Log.InfoContext(ctx, "the report of this node's volumes was not written; only flex2csi migrate needs it", "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

func (p *NodeReporter) document() NodeVolumes {
	records := p.Records()
	d := NodeVolumesOf(p.Node, p.BootID, p.Version, time.Now(), records, p.Staging)
	d.FlexDrivers = p.FlexDrivers
	for _, r := range records {
		if v := d.Find(r.Driver, r.Handle); v != nil && p.Kubelet != nil {
			v.setTakenOver(func(pod string) bool { return p.Kubelet(r, pod) })
		}
	}
	return d
}

func (p *NodeReporter) put(ctx context.Context, d NodeVolumes) error {
	if p.Stages != nil {
		d.StagingDrivers = p.Stages(ctx)
	}
	text, err := d.Encode()
	if err != nil {
		return err
	}
	return p.Put(ctx, text)
}
