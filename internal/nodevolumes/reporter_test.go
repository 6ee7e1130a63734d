package nodevolumes_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/nodevolumes"
	"github.com/flex2csi/flex2csi/internal/volstate"
)

// TestTellTakenOver: that the kubelet's CSI plugin has mounted a volume for a pod
// changes no record, and is told all the same; so is that it has not any more.
func TestTellTakenOver(t *testing.T) {
	var has atomic.Pointer[string] // what the kubelet has mounted: pods of the volume "a"
	none := ""
	has.Store(&none)
	var now string // all that one document says
	var retired atomic.Bool
	told := make(chan string)
	done := func(uid string) *volstate.Target {
		return &volstate.Target{Pod: csivol.Pod{UID: uid}, Publish: volstate.Done, Private: "/p"}
	}
	teller := &nodevolumes.Teller{
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
		Retired:     retired.Load,
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
		teller.Run(ctx)
	}()
	defer func() { stop(); <-ended }()
	for _, uid := range []string{"", "u2", "u1", ""} {
		has.Store(&uid)
		document, err := nodevolumes.Decode(<-told)
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

	// What is being taken away says nothing; if that is taken back, all of it.
	retired.Store(true)
	uid := "u1"
	has.Store(&uid)
	select {
	case document := <-told:
		t.Errorf("retired, and told %s", document)
	case <-time.After(50 * time.Millisecond):
	}
	has.Store(&none)
	retired.Store(false)
	if document, err := nodevolumes.Decode(<-told); err != nil || document.Find("d", "a") == nil {
		t.Errorf("%+v, %v", document, err)
	}
}

// TestTellAgain: what has not changed is told again, and at once after it could not
// be told: the ConfigMap may have been deleted, with what allowed it.
func TestTellAgain(t *testing.T) {
	told, fails := make(chan struct{}), make(chan error, 1)
	teller := &nodevolumes.Teller{
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
		teller.Run(ctx)
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

// TestTellStaging: whether a CSI driver stages is in no other object of the cluster.
func TestTellStaging(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	told := make(chan string, 1)
	teller := &nodevolumes.Teller{
		Node: "node-1", Log: slog.New(slog.DiscardHandler), Records: func() []*volstate.Record { return nil },
		Stages: func(context.Context) []string { return []string{"d"} },
		Put:    func(_ context.Context, text string) error { told <- text; return nil },
	}
	go teller.Run(ctx)
	d, err := nodevolumes.Decode(<-told)
	if err != nil || !d.Stages("d") || d.Stages("e") {
		t.Errorf("%+v, %v", d, err)
	}
	d = &nodevolumes.Document{Volumes: []nodevolumes.Volume{{CSIDriver: "a", Staged: nodevolumes.StagedElsewhere}, {CSIDriver: "b"}}}
	if !d.Stages("a") || d.Stages("b") {
		t.Error("what is staged tells as well")
	}
}
