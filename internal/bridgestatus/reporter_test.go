package bridgestatus_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/flex2csi/flex2csi/internal/bridgestatus"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/volstate"
)

// TestReportTakenOver: a mount or unmount of a volume by the kubelet's CSI plugin
// changes no record, and is reported all the same.
func TestReportTakenOver(t *testing.T) {
	var has atomic.Pointer[string] // what the kubelet has mounted: pods of the volume "a"
	none := ""
	has.Store(&none)
	var now string // all that one document says
	var cordoned atomic.Bool
	told := make(chan string)
	done := func(uid string) *volstate.Target {
		return &volstate.Target{Pod: csivol.Pod{UID: uid}, Publish: volstate.Done, TargetPath: "/p"}
	}
	reporter := &bridgestatus.NodeReporter{
		Node: "node-1", BootID: "boot", Every: time.Millisecond, Again: time.Hour, Log: slog.New(slog.DiscardHandler),
		Records: func() []*volstate.Record {
			now = *has.Load()
			return []*volstate.Record{
				{Driver: "d", Handle: "a", Stage: volstate.Done, Targets: map[string]*volstate.Target{"/1": done("u1"), "/2": done("u2")}},
				{Driver: "d", Handle: "b", Stage: volstate.Done, Targets: map[string]*volstate.Target{"/3": done("u1")}},
			}
		},
		Staging:     staging,
		Kubelet:     func(r *volstate.Record, pod string) bool { return r.Handle == "a" && pod != "" && pod == now },
		FlexDrivers: []string{"example.com/disk", "example.com/nfs"},
		Cordoned:    cordoned.Load,
		Put: func(ctx context.Context, document string) error {
			select {
			case told <- document:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		},
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		reporter.Run(ctx)
	}()
	defer func() { stop(); <-ended }()
	for _, uid := range []string{"", "u2", "u1", ""} {
		has.Store(&uid)
		document, err := bridgestatus.DecodeNodeVolumes(<-told)
		if err != nil {
			t.Fatal(err)
		}
		a, b := document.Find("d", "a"), document.Find("d", "b")
		if a.TakenOver != (uid != "") || a.HasTakenOver("u1") != (uid == "u1") || a.HasTakenOver("u2") != (uid == "u2") || !a.Has("u1") || b.TakenOver || b.HasTakenOver("u1") {
			t.Errorf("the kubelet has it for %q: %+v, %+v", uid, a, b)
		}
		if !document.Serves("example.com/nfs") || document.Serves("example.com/other") {
			t.Errorf("%q", document.FlexDrivers)
		}
	}

	// A cordoned node writes nothing; when the cordon is undone, all of it.
	cordoned.Store(true)
	uid := "u1"
	has.Store(&uid)
	select {
	case document := <-told:
		t.Errorf("cordoned, and wrote %s", document)
	case <-time.After(50 * time.Millisecond):
	}
	has.Store(&none)
	cordoned.Store(false)
	if document, err := bridgestatus.DecodeNodeVolumes(<-told); err != nil || document.Find("d", "a") == nil {
		t.Errorf("%+v, %v", document, err)
	}
}

// TestReportAgain: what has not changed is told again, and at once after it could not
// be told: the ConfigMap may have been deleted, with what allowed it.
func TestReportAgain(t *testing.T) {
	told, fails := make(chan struct{}), make(chan error, 1)
	reporter := &bridgestatus.NodeReporter{
		Node: "node-1", BootID: "boot", Every: time.Millisecond, Again: 20 * time.Millisecond, Pause: time.Millisecond, Log: slog.New(slog.DiscardHandler),
		Records: func() []*volstate.Record { return nil }, Staging: staging,
		Put: func(ctx context.Context, _ string) error {
			select {
			case told <- struct{}{}:
			case <-ctx.Done():
			}
			select {
			case err := <-fails:
				return err
			default:
				return nil
			}
		},
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		reporter.Run(ctx)
	}()
	defer func() { stop(); <-ended }()
	for range 3 {
		<-told
	}
	fails <- errors.New("forbidden")
	<-told
	select {
	case <-told:
	case <-time.After(10 * time.Second):
		t.Error("not told again after an error")
	}
}

// TestReportStaging: whether a CSI driver stages is in no other object of the cluster.
func TestReportStaging(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	told := make(chan string, 1)
	reporter := &bridgestatus.NodeReporter{
		Node: "node-1", Log: slog.New(slog.DiscardHandler), Records: func() []*volstate.Record { return nil },
		Stages: func(context.Context) []string { return []string{"d"} },
		Put:    func(_ context.Context, text string) error { told <- text; return nil },
	}
	go reporter.Run(ctx)
	d, err := bridgestatus.DecodeNodeVolumes(<-told)
	if err != nil || !d.Stages("d") || d.Stages("e") {
		t.Errorf("%+v, %v", d, err)
	}
	d = &bridgestatus.NodeVolumes{Volumes: []bridgestatus.NodeVolume{{CSIDriver: "a", Staged: bridgestatus.StagedElsewhere}, {CSIDriver: "b"}}}
	if !d.Stages("a") || d.Stages("b") {
		t.Error("what is staged tells as well")
	}
}
