package controller_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/flex2csi/flex2csi/internal/bridge"
	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

const options = `{"kubernetes.io/pvOrVolumeName":"pv","kubernetes.io/readwrite":"rw","volumeID":"vol"}`

func TestLife(t *testing.T) {
	c := newCluster()
	k := newController(c)
	for range 2 { // each call may be repeated
		if s := call(t, k, flexDriver, "attach", options, "node-1"); s.Status != flex.StatusSuccess || s.Device != "csi:vol" {
			t.Fatalf("attach: %+v", s)
		}
	}
	if s := call(t, k, flexDriver, "isattached", options, "node-1"); s.Attached == nil || !*s.Attached {
		t.Errorf("isattached: %+v", s)
	}
	if s := call(t, k, flexDriver, "isattached", options, "node-2"); s.Status != flex.StatusSuccess || s.Attached == nil || *s.Attached {
		t.Errorf("isattached of the other node: %+v", s)
	}
	for range 2 {
		if s := call(t, k, flexDriver, "detach", "pv", "node-1"); s.Status != flex.StatusSuccess {
			t.Errorf("detach: %+v", s)
		}
		if left := c.names(); len(left) != 0 {
			t.Errorf("left: %v", left)
		}
	}
}

// TestTwoCSIDrivers: one FlexVolume driver stands for two CSI drivers. detach has no options.
func TestTwoCSIDrivers(t *testing.T) {
	c := newCluster()
	k := newController(c)
	const share = "share.csi.example.com"
	k.Drivers.All = append(k.Drivers.All, &bridge.FlexDriver{Name: flexDriver, CSIDriver: share, Map: func(_ context.Context, o flex.Options) (*csivol.Volume, error) {
		return &csivol.Volume{FlexDriver: flexDriver, Driver: share, Handle: o.User["volumeID"], Name: o.VolumeName}, nil
	}})
	k.Drivers.Choose = func(_ string, o flex.Options) (int, error) {
		if o.FSType == "zfs" {
			return -1, flex.Errorf(flex.CodeInvalidArgument, "of no CSI driver")
		}
		return len(o.FSType) / 4, nil // ceph: the share's
	}
	ofShare := strings.NewReplacer(`{`, `{"kubernetes.io/fsType":"ceph",`, `"pv"`, `"pv2"`).Replace(options)
	for _, o := range []string{options, ofShare} {
		if s := call(t, k, flexDriver, "attach", o, "node-1"); s.Status != flex.StatusSuccess {
			t.Fatalf("attach: %+v", s)
		}
		if s := call(t, k, flexDriver, "isattached", o, "node-1"); s.Attached == nil || !*s.Attached {
			t.Errorf("isattached: %+v", s)
		}
	}
	want := []string{objects.AttachmentName("vol", csiDriver, "node-1"), objects.AttachmentName("vol", share, "node-1")}
	slices.Sort(want)
	if got := slices.Sorted(slices.Values(c.names())); !slices.Equal(got, want) {
		t.Errorf("attached: %v, want %v", got, want)
	}
	if s := call(t, k, flexDriver, "attach", strings.Replace(ofShare, "ceph", "zfs", 1), "node-1"); s.Status != flex.StatusFailure || s.Message != "of no CSI driver" {
		t.Errorf("a volume of no CSI driver: %+v", s)
	}
	for _, name := range []string{"pv2", "pv"} {
		if s := call(t, k, flexDriver, "detach", name, "node-1"); s.Status != flex.StatusSuccess {
			t.Errorf("detach: %+v", s)
		}
	}
	if left := c.names(); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// TestTwoPersistentVolumes: kube-controller-manager detaches them one by one, and
// they are one volume.
func TestTwoPersistentVolumes(t *testing.T) {
	c := newCluster()
	k := newController(c)
	if s := call(t, k, flexDriver, "attach", options, "node-1"); s.Status != flex.StatusSuccess {
		t.Fatalf("attach: %+v", s)
	}
	other := strings.Replace(options, `"pv"`, `"pv2"`, 1)
	if s := call(t, k, flexDriver, "attach", other, "node-1"); s.Code != flex.CodeFailedPrecondition || !strings.Contains(s.Message, "pv2 and pv are the same volume") {
		t.Errorf("the other one: %+v", s)
	}
	if s := call(t, k, flexDriver, "detach", "pv2", "node-1"); s.Status != flex.StatusSuccess || len(c.names()) != 1 {
		t.Errorf("detach of the other one: %+v, left: %v", s, c.names())
	}
	if s := call(t, k, flexDriver, "attach", other, "node-2"); s.Status != flex.StatusSuccess {
		t.Errorf("on another node: %+v", s)
	}
}

// TestAttachWantsAPod: a volume that no pod of the node may have is not attached.
func TestAttachWantsAPod(t *testing.T) {
	c := newCluster()
	k := newController(c)
	k.Drivers.All[0].MayAttach = func(_ context.Context, v *csivol.Volume, node string) error {
		return flex.Errorf(flex.CodeFailedPrecondition, "no pod of %s has %s", node, v.Name)
	}
	if s := call(t, k, flexDriver, "attach", options, "node-1"); s.Code != flex.CodeFailedPrecondition || !strings.Contains(s.Message, "no pod of node-1 has pv") {
		t.Errorf("attach: %+v", s)
	}
	if left := c.names(); len(left) != 0 {
		t.Errorf("attached: %v", left)
	}
}

// TestIsAttachedNeverGuesses: a "no" has the volume attached once more.
func TestIsAttachedNeverGuesses(t *testing.T) {
	c := newCluster()
	k := newController(c)
	c.unknown = true
	if s := call(t, k, flexDriver, "isattached", options, "node-1"); s.Attached == nil || *s.Attached {
		t.Errorf("before anything has been seen, and there is none: %+v", s)
	}
	call(t, k, flexDriver, "attach", options, "node-1")
	if s := call(t, k, flexDriver, "isattached", options, "node-1"); s.Attached == nil || !*s.Attached {
		t.Errorf("before anything has been seen: %+v", s)
	}
	call(t, k, flexDriver, "detach", "pv", "node-1")
	c.unknown = false
	c.volumes["pv"] = csivol.PersistentVolume{Name: "pv", CSI: csivol.Key{Driver: csiDriver, Handle: "vol"}}
	if s := call(t, k, flexDriver, "isattached", options, "node-1"); s.Attached == nil || !*s.Attached {
		t.Errorf("what has become a CSI volume, and is left to the control plane: %+v", s)
	}
	delete(c.volumes, "pv")
	if s := call(t, k, flexDriver, "isattached", options, "node-1"); s.Attached == nil || !*s.Attached {
		t.Errorf("the PersistentVolume is gone, and so is its pod soon: %+v", s)
	}
	k.Drivers.All[0].Map = func(context.Context, flex.Options) (*csivol.Volume, error) {
		return nil, flex.Errorf(flex.CodePermissionDenied, "it is an inline volume")
	}
	if s := call(t, k, flexDriver, "isattached", options, "node-1"); s.Attached == nil || !*s.Attached {
		t.Errorf("the PersistentVolume is gone, and it looks like an inline volume: %+v", s)
	}
	c.volumes["pv"] = csivol.PersistentVolume{Name: "pv", FlexDriver: flexDriver}
	if s := call(t, k, flexDriver, "isattached", options, "node-1"); s.Code != flex.CodePermissionDenied {
		t.Errorf("an inline volume with the name of a PersistentVolume: %+v", s)
	}
	c.err = flex.Errorf(flex.CodeUnavailable, "the API server is away")
	if s := call(t, k, flexDriver, "isattached", options, "node-1"); s.Status != flex.StatusFailure {
		t.Errorf("what is not watched, and cannot be asked: %+v", s)
	}
}

// TestDetach: what is in use on a node that lives stays, and what cannot be
// looked at is no Success.
func TestDetach(t *testing.T) {
	for name, test := range map[string]struct {
		node   []func(*corev1.Node) // nil: there is none
		driver string
		change func(*storagev1.VolumeAttachment)
		err    error
		code   flex.Code // empty: Success
		left   bool
	}{
		"unused":                {node: []func(*corev1.Node){ready}},
		"in use":                {node: []func(*corev1.Node){ready, inUse(flexDriver + "/pv")}, code: flex.CodeFailedPrecondition, left: true},
		"another is in use":     {node: []func(*corev1.Node){ready, inUse(flexDriver + "/pv2")}},
		"the node is not ready": {node: []func(*corev1.Node){inUse(flexDriver + "/pv")}},
		"out of service":        {node: []func(*corev1.Node){outOfService, inUse(flexDriver + "/pv")}},
		"back, and the taint is forgotten": {
			node: []func(*corev1.Node){ready, outOfService, inUse(flexDriver + "/pv")},
			code: flex.CodeFailedPrecondition, left: true,
		},
		"the node is gone":  {},
		"made by the node":  {node: []func(*corev1.Node){ready}, change: func(a *storagev1.VolumeAttachment) { a.Labels[objects.AttachedByLabel] = objects.AttachedByNode }},
		"of another driver": {node: []func(*corev1.Node){ready}, driver: "example.com/other", left: true},
		"not configured (any more)": {
			node: []func(*corev1.Node){ready}, driver: "example.com/gone",
			change: func(a *storagev1.VolumeAttachment) {
				a.Annotations[objects.FlexDriverAnnotation] = "example.com/gone"
			},
		},
		"the API server is away": {err: flex.Errorf(flex.CodeUnavailable, "away"), code: flex.CodeUnavailable, left: true},
	} {
		c := newCluster()
		a := old("node-1", objects.AttachedByController)
		if test.change != nil {
			test.change(a)
		}
		c.put(a)
		delete(c.nodes, "node-1")
		if test.node != nil {
			c.nodes["node-1"] = node("node-1", test.node...)
		}
		c.err = test.err
		driver := flexDriver
		if test.driver != "" {
			driver = test.driver
		}
		s := call(t, newController(c), driver, "detach", "pv", "node-1")
		if s.Code != test.code || (s.Status == flex.StatusSuccess) != (test.code == "") {
			t.Errorf("%s: %+v, want %q", name, s, test.code)
		}
		if left := len(c.names()) > 0; left != test.left {
			t.Errorf("%s: left: %t", name, left)
		}
	}
}

// TestDetachWaitsForAttach: one that overtook it would find nothing, and the
// attachment would stay.
func TestDetachWaitsForAttach(t *testing.T) {
	c := newCluster()
	c.attaching = make(chan struct{})
	k := newController(c)
	attached, detached := make(chan flex.DriverStatus, 1), make(chan flex.DriverStatus, 1)
	go func() { attached <- call(t, k, flexDriver, "attach", options, "node-1") }()
	waiting(t, k)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	wantWaiting := func(argv ...string) {
		t.Helper()
		s := callCtx(ctx, t, k, flexDriver, argv...)
		if s.Code != flex.CodeDeadlineExceeded || !strings.Contains(s.Message, "volume pv on node node-1 is still being attached or detached: context deadline exceeded") {
			t.Errorf("a call that has no time to wait: %+v", s)
		}
	}
	wantWaiting("detach", "pv", "node-1")
	if s := call(t, k, flexDriver, "detach", "pv", "node-2"); s.Status != flex.StatusSuccess {
		t.Errorf("another node waits, too: %+v", s)
	}
	wantWaiting("detach", "pv", "node-1") // the turn of another one changes nothing
	wantWaiting("attach", options, "node-1")
	go func() { detached <- call(t, k, flexDriver, "detach", "pv", "node-1") }()
	time.Sleep(50 * time.Millisecond) // it waits by now, most likely
	close(c.attaching)
	if s := <-attached; s.Status != flex.StatusSuccess {
		t.Errorf("attach: %+v", s)
	}
	if s := <-detached; s.Status != flex.StatusSuccess || len(c.names()) != 0 {
		t.Errorf("detach: %+v, left: %v", s, c.names())
	}
}

// waiting returns when an attach has its turn: a call that has no time gets none.
func waiting(t *testing.T, k interface {
	Callouts(name string) (*flex.Driver, error)
},
) {
	t.Helper()
	d, err := k.Callouts(flexDriver)
	if err != nil {
		t.Fatal(err)
	}
	for stop := time.Now().Add(time.Minute); time.Now().Before(stop); {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		s := flex.Run(ctx, d, []string{"detach", "pv", "node-1"})
		cancel()
		if s.Status == flex.StatusFailure {
			return
		}
	}
	t.Fatal("attach does not get its turn")
}

// TestRefused: what is not for the controller, or cannot be done by it, is a
// Failure that says so; "Not supported" would be remembered.
func TestRefused(t *testing.T) {
	c := newCluster()
	k := newController(c)
	dir := "/k/pods/1/volumes/example.com~disk/pv"
	for _, argv := range [][]string{
		{"waitforattach", "csi:vol", options},
		{"mountdevice", dir, "csi:vol", options},
		{"mount", dir, options},
		{"unmount", dir},
		{"unmountdevice", dir},
		{"expandfs", options, "", dir, "2", "1"},
		{"expandvolume", options, dir, "2", "1"},
	} {
		if s := call(t, k, flexDriver, argv...); s.Code != flex.CodeFailedPrecondition || !strings.Contains(s.Message, "daemon of the node") {
			t.Errorf("%s: %+v", argv[0], s)
		}
	}
	for _, argv := range [][]string{{"attach", options, "node-1"}, {"isattached", options, "node-1"}} {
		if s := call(t, k, "example.com/unknown", argv...); s.Code != flex.CodeFailedPrecondition || !strings.Contains(s.Message, "example.com/unknown") {
			t.Errorf("%s of an unknown driver: %+v", argv[0], s)
		}
	}
	k.Drivers.All[0].AttachSecretsHere = true
	if s := call(t, k, flexDriver, "attach", options, "node-1"); s.Code != flex.CodeFailedPrecondition || !strings.Contains(s.Message, "secrets.controllerPublish") || len(c.names()) > 0 {
		t.Errorf("attach without the secrets that it wants: %+v, made %v", s, c.names())
	}
	k.Drivers.All[0].AttachSecretsHere = false
	c.attachErr = flex.Errorf(flex.CodeDeadlineExceeded, "still attaching: no such disk")
	if s := call(t, k, flexDriver, "attach", options, "node-1"); s.Code != flex.CodeDeadlineExceeded || !strings.Contains(s.Message, "no such disk") {
		t.Errorf("attach: %+v", s)
	}
}

// TestModes: who wants to be attached.
func TestModes(t *testing.T) {
	for name, test := range map[string]struct {
		mode      bridgeconfig.AttachMode
		need      bridge.AttachNeed
		needErr   error
		wantVA    bool
		wantError string
	}{
		"none":                        {mode: bridgeconfig.AttachNone},
		"always":                      {mode: bridgeconfig.AttachVA, need: bridge.NeedNoAttach, wantVA: true},
		"controller's socket":         {mode: bridgeconfig.AttachController, wantError: "attach: VolumeAttachment"},
		"auto, attachRequired":        {mode: bridgeconfig.AttachAuto, need: bridge.NeedAttach, wantVA: true},
		"auto, no CSIDriver object":   {mode: bridgeconfig.AttachAuto, need: bridge.NeedByController, wantVA: true},
		"auto, attachRequired: false": {mode: bridgeconfig.AttachAuto, need: bridge.NeedNoAttach},
		"auto, not known":             {mode: bridgeconfig.AttachAuto, needErr: errors.New("the API server is away"), wantError: "away"},
	} {
		c := newCluster()
		k := newController(c)
		d := k.Drivers.All[0]
		d.Attach = test.mode
		d.Policy = func(context.Context) (bridge.Policy, error) { return bridge.Policy{Attach: test.need}, test.needErr }
		s := call(t, k, flexDriver, "attach", options, "node-1")
		if (s.Status == flex.StatusFailure) != (test.wantError != "") || !strings.Contains(s.Message, test.wantError) {
			t.Errorf("%s: %+v", name, s)
		}
		if made := len(c.names()) > 0; made != test.wantVA {
			t.Errorf("%s: a VolumeAttachment was made: %t", name, made)
		}
		if test.wantError == "attach: VolumeAttachment" && s.Code != flex.CodeFailedPrecondition {
			t.Errorf("%s: %+v", name, s)
		}
		if s.Status == flex.StatusFailure {
			if s := call(t, k, flexDriver, "isattached", options, "node-1"); s.Attached != nil || !strings.Contains(s.Message, test.wantError) {
				t.Errorf("%s: isattached: %+v", name, s)
			}
		}
		if s.Status == flex.StatusSuccess {
			if s := call(t, k, flexDriver, "isattached", options, "node-1"); s.Attached == nil || !*s.Attached {
				t.Errorf("%s: isattached: %+v", name, s)
			}
		}
	}
}

// TestAttachableModes: the external-attacher refuses ReadWriteOnce and ReadOnlyMany
// together.
func TestAttachableModes(t *testing.T) {
	c := newCluster()
	k := newController(c)
	k.Drivers.All[0].Map = func(_ context.Context, o flex.Options) (*csivol.Volume, error) {
		return &csivol.Volume{
			FlexDriver: flexDriver, Driver: csiDriver, Handle: o.User["volumeID"], Name: o.VolumeName,
			AccessMode: csivol.ReadOnlyMany, AccessModes: []csivol.AccessMode{csivol.ReadOnlyMany, csivol.ReadWriteOnce},
		}, nil
	}
	if s := call(t, k, flexDriver, "attach", options, "node-1"); s.Status != flex.StatusSuccess {
		t.Fatalf("attach: %+v", s)
	}
	modes := c.attachments[objects.AttachmentName("vol", csiDriver, "node-1")].Spec.Source.InlineVolumeSpec.AccessModes
	if len(modes) != 1 || modes[0] != corev1.ReadOnlyMany {
		t.Errorf("attached as %v", modes)
	}
}
