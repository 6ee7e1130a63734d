package bridgestatus_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flex2csi/flex2csi/internal/bridgestatus"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/report"
	"github.com/flex2csi/flex2csi/internal/volstate"
)

func target(p volstate.Phase, bound bool) *volstate.Target {
	return &volstate.Target{Publish: p, Bound: bound}
}

// TestPhaseOf: the furthest part of a volume's life, and of its pods the one
// that is under way.
func TestPhaseOf(t *testing.T) {
	for _, tt := range []struct {
		want          bridgestatus.Phase
		attach, stage volstate.Phase
		targets       []*volstate.Target
		uncertain     bool
	}{
		{want: bridgestatus.Idle},
		{want: bridgestatus.Claimed, targets: []*volstate.Target{target("", false)}},
		{want: bridgestatus.Attaching, attach: volstate.Doing, targets: []*volstate.Target{target("", false)}, uncertain: true},
		{want: bridgestatus.Attached, attach: volstate.Done},
		{want: bridgestatus.Detaching, attach: volstate.Undoing, uncertain: true},
		{want: bridgestatus.Staging, attach: volstate.Done, stage: volstate.Doing, targets: []*volstate.Target{target("", false)}, uncertain: true},
		{want: bridgestatus.Staged, stage: volstate.Done},
		{want: bridgestatus.Unstaging, attach: volstate.Done, stage: volstate.Undoing, uncertain: true},
		{want: bridgestatus.Publishing, stage: volstate.Done, targets: []*volstate.Target{target(volstate.Doing, false), target(volstate.Done, true)}, uncertain: true},
		{want: bridgestatus.Publishing, stage: volstate.Done, targets: []*volstate.Target{target(volstate.Done, false)}},
		{want: bridgestatus.Published, attach: volstate.Done, stage: volstate.Done, targets: []*volstate.Target{target(volstate.Done, true), target("", false)}},
		{want: bridgestatus.Unpublishing, stage: volstate.Done, targets: []*volstate.Target{target(volstate.Done, true), target(volstate.Undoing, false)}, uncertain: true},
	} {
		r := &volstate.Record{Attach: tt.attach, Stage: tt.stage, Targets: map[string]*volstate.Target{}}
		for i, to := range tt.targets {
			r.Targets["/"+string(rune('a'+i))] = to
		}
		if got := bridgestatus.PhaseOf(r); got != tt.want {
			t.Errorf("%+v: %s, want %s", tt, got, tt.want)
		}
		if !slices.Contains(bridgestatus.Phases(), tt.want) {
			t.Errorf("%s is not among Phases", tt.want)
		}
		if got := r.Uncertain(); got != tt.uncertain {
			t.Errorf("%+v: uncertain is %t", tt, got)
		}
	}
}

func date(clock string) time.Time {
	t, err := time.Parse(time.DateTime, "2026-11-21 "+clock)
	if err != nil {
		panic(err)
	}
	return t
}

const podDir = "/var/lib/kubelet/pods/uid-1/volumes/example.com~disk/pv1"

// sample is the status of a node with something of everything.
func sample() *bridgestatus.BridgeStatus {
	r := &volstate.Record{
		FlexDriver: "example.com/disk", Driver: "csi.example.com", Handle: "vol-1", Name: "pv1",
		Context: map[string]string{"a": "hidden-1"}, MountFlags: []string{"password=hidden-2"}, PublishContext: map[string]string{"b": "hidden-3"},
		FSType: "ext4", AccessMode: csivol.ReadWriteOnce,
		Attach: volstate.Done, Attachment: "node", Object: "csi-0a1b", Unmanaged: true, NodeID: "id-1", Stage: volstate.Done, StagingPath: "/staging",
		Targets: map[string]*volstate.Target{podDir: {
			TargetPath: "/private", Pod: csivol.Pod{Name: "web", Namespace: "shop", UID: "uid-1"},
			Publish: volstate.Done, Bound: true, Since: date("11:50:00"),
		}},
		Expand: volstate.Done, ExpandSize: 1 << 30, Owner: volstate.Kubelet,
		LastError: "NodeStageVolume: internal: mount -o password=hidden-4: failed\nfor good", Changed: date("11:59:00"),
	}
	s := bridgestatus.New(bridgestatus.SourceDaemon)
	s.Time = date("12:00:00")
	s.Daemon = &bridgestatus.Daemon{NodeName: "node-1", Version: "v1.0.0", Started: date("10:00:00")}
	begun := date("11:59:50")
	v := bridgestatus.Of(r)
	v.Operations = []bridgestatus.Operation{
		{Command: "unmount", Dir: podDir, Request: "9f86", Since: date("11:59:48"), Begun: &begun, Step: "NodeUnpublishVolume", StepSince: &begun},
		{Command: "mount", Dir: "/other", Request: "d081", Since: date("11:59:55")},
	}
	doubtful := bridgestatus.Of(&volstate.Record{
		FlexDriver: "example.com/nfs", Driver: "nfs.example.com", Handle: "vol-2", Name: "pv2", Stage: volstate.Doing, StagingPath: "/staging2", Changed: date("11:58:00"),
		Targets: map[string]*volstate.Target{strings.Replace(podDir, "pv1", "pv2", 1): {Pod: csivol.Pod{Name: "db", Namespace: "shop"}, LastError: strings.Repeat("long ", 30)}},
	})
	doubtful.Targets[0].Corrupted, doubtful.Staging.Corrupted = "transport endpoint is not connected", "gone"
	s.Volumes = []bridgestatus.VolumeStatus{v, doubtful}
	s.Volumes[0].Attachment.Lost = true
	since := date("10:00:00")
	s.Cluster = &bridgestatus.ClusterStatus{Since: &begun, LastError: "connection refused"}
	s.Drivers = []bridgestatus.DriverStatus{
		{FlexDriver: "example.com/disk", CSIDriver: "csi.example.com", Services: []bridgestatus.Service{{Name: "node", Connected: true, Since: &since, Version: "1.2", Reconnects: 3}, {Name: "controller", LastError: "no process answers"}}},
		{FlexDriver: "example.com/nfs", CSIDriver: "nfs.example.com", Services: []bridgestatus.Service{{Name: "node"}}},
	}
	s.Failures = []bridgestatus.Failure{{
		FlexDriver: "example.com/disk", Command: "mount", PersistentVolume: "pv3", Dir: "/lost", Pod: bridgestatus.PodRef{Namespace: "shop", Name: "cart"},
		Since: date("11:56:00"), Last: date("11:59:30"), Count: 4, Request: "aabb", Code: "not_found", Message: "there is no volume vol-3",
	}}
	s.Lost = []bridgestatus.Lost{{FlexDriver: "example.com/disk", PersistentVolume: "pv9", Dir: "/found"}}
	s.PendingUnmounts = []bridgestatus.PendingUnmount{{FlexDriver: "example.com/disk", Dir: "/gone", Since: date("11:00:00")}}
	s.BrokenFiles = []string{"/state/x.json.1.broken"}
	return s
}

func printed(t *testing.T, s *bridgestatus.BridgeStatus, wide, byPod bool) string {
	t.Helper()
	view := report.Table
	if wide {
		view = report.Wide
	}
	var out strings.Builder
	if err := s.Show(view, byPod).Write(&out, view); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "hidden") {
		t.Errorf("a secret is shown:\n%s", out.String())
	}
	return out.String()
}

func TestTables(t *testing.T) {
	const rest = `
FAILED CALL  VOLUME  POD        SINCE  LAST  TIMES  CODE       MESSAGE
mount        pv3     shop/cart  4m     30s   4      not_found  there is no volume vol-3

CSI DRIVER       FLEX DRIVER       SERVICE     CONNECTED       VERSION  SINCE  RECONNECTS  TROUBLE
csi.example.com  example.com/disk  node        yes             1.2      2h     3           -
csi.example.com  example.com/disk  controller  no              -        -      0           no process answers
nfs.example.com  example.com/nfs   node        not needed yet  -        -      0           -

MOUNTED WITHOUT A RECORD  VOLUME  FLEX DRIVER
/found                    pv9     example.com/disk

UNMOUNTED WITHOUT THE DAEMON  FLEX DRIVER       SINCE
/gone                         example.com/disk  60m

the API server cannot be reached (10s): connection refused

broken state file: /state/x.json.1.broken
`
	got := printed(t, sample(), false, false)
	_, gotRest, _ := strings.Cut(got, "\n\n")
	if diff := cmp.Diff(rest, "\n"+gotRest); diff != "" {
		t.Error(diff)
	}
	for _, want := range []string{
		"pv1", "shop/web", "10m", "unmount 12s (NodeUnpublishVolume 10s), mount 5s (waits)", "its VolumeAttachment is lost; migrated: the kubelet's CSI plugin has it, too; NodeStageVolume: internal: mount -o password=[redacted]",
		"Staging", "shop/db", "2 corrupted; long long",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not shown:\n%s", want, got)
		}
	}
	if n := strings.Count(strings.Split(got, "\n\n")[0], "\n"); n != 2 {
		t.Errorf("the table has %d lines, want a header and two:\n%s", n+1, got)
	}
}

func TestWide(t *testing.T) {
	got := printed(t, sample(), true, false)
	for _, want := range []string{"[9f86]", "aabb", "/lost", "example.com/disk", "Attached to id-1 by node, csi-0a1b (not ours)", "/staging2", "ReadWriteOnce", strings.Repeat("long ", 29)} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not shown:\n%s", want, got)
		}
	}
}

func TestByPod(t *testing.T) {
	got := printed(t, sample(), true, true)
	lines := strings.Split(got, "\n")
	for _, row := range [][]string{
		{"NAMESPACE", "POD", "VOLUME", "PHASE"},
		{"shop", "web", "pv1", "Published", "unmount 12s (NodeUnpublishVolume 10s) [9f86]", "uid-1", podDir, "/private"},
		{"shop", "db", "pv2", "Claimed", "corrupted: transport endpoint is not connected", "uid-1"},
	} {
		for _, cell := range row {
			if !strings.Contains(lines[0], cell) {
				t.Errorf("%q is not in %s", cell, lines[0])
			}
		}
		lines = lines[1:]
	}
	if strings.Contains(strings.Split(got, "\n")[1], "mount 5s") {
		t.Errorf("the operation of another pod is shown:\n%s", got)
	}
}

// TestPrograms: what programs read is as it was.
func TestPrograms(t *testing.T) {
	s := sample()
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "hidden") {
		t.Errorf("a secret is shown:\n%s", text)
	}
	var back bridgestatus.BridgeStatus
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(s, &back); diff != "" {
		t.Error(diff)
	}
}

// TestEmpty: nothing is an empty list, not null, and a table all the same.
func TestEmpty(t *testing.T) {
	s := bridgestatus.New(bridgestatus.SourceStateDir)
	if text, err := json.Marshal(s); err != nil || strings.Contains(string(text), "null") {
		t.Errorf("%s: %v", text, err)
	}
	if text := printed(t, s, false, false); strings.Count(text, "\n") != 1 {
		t.Errorf("want only a header:\n%s", text)
	}
}

func TestFilter(t *testing.T) {
	for names, want := range map[string]string{
		"":                 "pv1/1 pv2/1 d2 f",
		"pv1":              "pv1/1 d1",
		"vol-2":            "pv2/1 d1",
		"web":              "pv1/1 d1",
		"shop/db":          "pv2/1 d1",
		"shop":             "pv1/1 pv2/1 d2 f",
		"uid-1":            "pv1/1 pv2/1 d2",
		"example.com/nfs":  "pv2/1 d1",
		"csi.example.com":  "pv1/1 d1",
		"none":             "d0",
		"cart":             "d0 f",
		"pv3":              "d0 f",
		"none pv2":         "pv2/1 d1",
		"web/shop":         "d0",
		"csi.example.com/": "d0",
	} {
		s := sample()
		got := s.Filter(strings.Fields(names))
		var out []string
		for _, v := range got.Volumes {
			out = append(out, v.PersistentVolume+"/"+string(rune('0'+len(v.Targets))))
		}
		out = append(out, "d"+string(rune('0'+len(got.Drivers))))
		if len(got.Failures) > 0 {
			out = append(out, "f")
		}
		if text := strings.Join(out, " "); text != want {
			t.Errorf("%q gives %s, want %s", names, text, want)
		}
		if diff := cmp.Diff(sample(), s); diff != "" {
			t.Errorf("%q changes the original: %s", names, diff)
		}
	}
}
