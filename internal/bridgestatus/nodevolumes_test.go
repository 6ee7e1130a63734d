package bridgestatus_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flex2csi/flex2csi/internal/bridgestatus"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/volstate"
)

func staging(r *volstate.Record) string { return "/kubelet/" + r.Handle }

// TestOf: a pod is in the document when it has its volume, and not before.
func TestOf(t *testing.T) {
	const dir = "/var/lib/kubelet/pods/uid-of-path/volumes/example.com~disk/pv1"
	records := []*volstate.Record{
		{
			Driver: "d", Handle: "b", Name: "pv1", FlexDriver: "example.com/disk", Attach: volstate.Done, Object: "csi-1",
			Stage: volstate.Done, StagingPath: "/kubelet/b",
			Targets: map[string]*volstate.Target{
				"/x":  {Pod: csivol.Pod{UID: "u2"}, Publish: volstate.Done, TargetPath: "/p"},
				dir:   {Publish: volstate.Done},
				"/y":  {Pod: csivol.Pod{UID: "u3"}, Publish: volstate.Doing},
				"/zz": {Pod: csivol.Pod{UID: "u4"}},
			},
		},
		{Driver: "d", Handle: "a", Stage: volstate.Undoing, StagingPath: "/elsewhere"},
	}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	d := bridgestatus.NodeVolumesOf("node-1", "boot", "v1", now, records, staging)
	text, err := d.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := bridgestatus.DecodeNodeVolumes(text)
	if err != nil {
		t.Fatal(err)
	}
	want := []bridgestatus.NodeVolume{
		{CSIDriver: "d", VolumeHandle: "a", Staged: bridgestatus.StagedElsewhere, Uncertain: true},
		{
			CSIDriver: "d", VolumeHandle: "b", PersistentVolume: "pv1", FlexDriver: "example.com/disk",
			Staged: bridgestatus.StagedAsByKubelet, Uncertain: true,
			Pods: []bridgestatus.NodePod{{UID: "u2"}, {UID: "uid-of-path"}},
		},
	}
	if diff := cmp.Diff(want, got.Volumes); diff != "" || got.Node != "node-1" || got.BootID != "boot" || got.Incomplete || !got.Written.Equal(now) {
		t.Errorf("%+v (-want +got):\n%s", got, diff)
	}
	v := got.Find("d", "b")
	if v == nil || !v.Has("u2") || v.Has("u3") || got.Find("d", "c") != nil {
		t.Errorf("%+v", v)
	}
}

// TestTooMany: volumes that do not fit are left out, and the document says so.
func TestTooMany(t *testing.T) {
	var records []*volstate.Record
	for i := range 10000 {
		records = append(records, &volstate.Record{Driver: "disk.csi.example.com", Handle: fmt.Sprintf("volume-%04d-of-a-length-as-is-usual", i), Stage: volstate.Done})
	}
	text, err := bridgestatus.NodeVolumesOf("node-1", "boot", "v1", time.Now(), records, staging).Encode()
	if err != nil {
		t.Fatal(err)
	}
	d, err := bridgestatus.DecodeNodeVolumes(text)
	if err != nil || len(text) > bridgestatus.MaxSize || !d.Incomplete || len(d.Volumes) < 1000 {
		t.Errorf("%d bytes, %d volumes, %v", len(text), len(d.Volumes), err)
	}
	if _, err := bridgestatus.DecodeNodeVolumes(`{"kind":"Other"}`); err == nil {
		t.Error("another kind is read")
	}
}
