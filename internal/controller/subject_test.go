package controller_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/flex2csi/flex2csi/internal/controller"
	"github.com/flex2csi/flex2csi/internal/volumelog"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// TestLogNamesTheVolume: also of detach, which has no options to map.
func TestLogNamesTheVolume(t *testing.T) {
	k := newController(newCluster())
	for _, argv := range [][]string{{"attach", options, "node-1"}, {"isattached", options, "node-1"}, {"detach", "pv", "node-1"}} {
		ctx := volumelog.With(t.Context(), volumelog.Subject{Request: "9f86", PersistentVolume: "pv"})
		if s := callCtx(ctx, t, k, flexDriver, argv...); s.Status != flex.StatusSuccess {
			t.Fatalf("%s: %+v", argv[0], s)
		}
		if got, want := volumelog.From(ctx), (volumelog.Subject{Request: "9f86", PersistentVolume: "pv", CSIDriver: csiDriver, VolumeHandle: "vol"}); got != want {
			t.Errorf("%s is known to be about %+v, want %+v", argv[0], got, want)
		}
	}
}

// TestSweeperLogNamesTheVolume: nothing but the VolumeAttachment tells which it is.
func TestSweeperLogNamesTheVolume(t *testing.T) {
	c := newCluster()
	if s := call(t, newController(c), flexDriver, "attach", options, "node-1"); s.Status != flex.StatusSuccess {
		t.Fatalf("attach: %+v", s)
	}
	delete(c.nodes, "node-1")
	var log bytes.Buffer
	now := time.Now()
	s := &controller.Sweeper{View: c, Delete: c.Detach, Log: slog.New(slog.NewTextHandler(&log, nil)), Now: func() time.Time { return now }}
	for range 2 {
		s.Sweep(t.Context(), true)
		now = now.Add(time.Hour)
	}
	if want := "persistentVolume=pv csiDriver=" + csiDriver + " volumeHandle=vol volumeAttachment=csi-"; !strings.Contains(log.String(), want) {
		t.Errorf("no line has %s:\n%s", want, log.String())
	}
}
