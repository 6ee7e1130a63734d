package drivers_test

import (
	"context"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/flex2csi/flex2csi/internal/bridge"
	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/drivers"
	"github.com/flex2csi/flex2csi/internal/mapping"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// cluster is a fake with the answers that a test chooses.
type cluster struct {
	info          csivol.DriverInfo
	found, synced bool
	cached, fresh map[string]*csivol.PersistentVolume
	err           error // of what is fresh
	asked         []string
}

func newCluster() *cluster {
	pv := &csivol.PersistentVolume{
		Name: "pv1", FlexDriver: "example.com/disk", Source: csivol.Source(map[string]string{"volumeID": "x"}, "ext4"),
		AccessModes: []csivol.AccessMode{csivol.ReadWriteMany}, Claim: csivol.ObjectRef{Namespace: "shop", Name: "data", UID: "c1"},
	}
	volumes := map[string]*csivol.PersistentVolume{"pv1": pv}
	return &cluster{found: true, synced: true, cached: volumes, fresh: maps.Clone(volumes)}
}

func (c *cluster) CSIDriver(string) (csivol.DriverInfo, bool, bool) { return c.info, c.found, c.synced }

func (c *cluster) PersistentVolume(_ context.Context, name string, fresh bool) (*csivol.PersistentVolume, error) {
	if pv := c.cached[name]; pv != nil && !fresh {
		c.asked = append(c.asked, "cached")
		return pv, nil
	}
	c.asked = append(c.asked, "fresh")
	if c.err != nil {
		return nil, c.err
	}
	if pv := c.fresh[name]; pv != nil {
		return pv, nil
	}
	return nil, flex.Errorf(flex.CodeNotFound, "there is no PersistentVolume %s", name)
}

func (c *cluster) FlexOptions(ctx context.Context, name string) (flex.Options, *csivol.PersistentVolume, error) {
	pv, err := c.PersistentVolume(ctx, name, true)
	return flex.Options{VolumeName: name, FSType: "ext4", User: map[string]string{"volumeID": "x"}}, pv, err
}

func (c *cluster) ClaimUsed(_ context.Context, claim csivol.ObjectRef, node string) (bool, error) {
	return claim == c.fresh["pv1"].Claim && node == "node-1", c.err
}

func (c *cluster) Secret(context.Context, csivol.SecretRef) (map[string]flex.Secret, error) {
	return map[string]flex.Secret{"key": flex.NewSecret([]byte("value"))}, nil
}

func (c *cluster) Tokens(context.Context, csivol.Pod, []csivol.TokenRequest) (flex.Secret, error) {
	return flex.Secret{}, nil
}

// attacher is a fake that is not called here.
type attacher struct{ bridge.Attacher }

func driver(t *testing.T, change func(*bridgeconfig.Driver)) (*bridgeconfig.Driver, *mapping.Mapper) {
	t.Helper()
	c := bridgeconfig.DefaultDriver()
	c.FlexDriver, c.CSIDriver = "example.com/disk", "disk.csi.example.com"
	if change != nil {
		change(&c)
	}
	mappers, err := mapping.Compile(&bridgeconfig.Configuration{Drivers: []bridgeconfig.Driver{c}})
	if err != nil {
		t.Fatal(err)
	}
	return &c, mappers[0]
}

// TestOnlyPersistentVolumes: a call is for the PersistentVolume that it names,
// or it is refused.
func TestOnlyPersistentVolumes(t *testing.T) {
	away := flex.Errorf(flex.CodeUnavailable, "no API server")
	ours := func(change func(*flex.Options)) flex.Options {
		o := flex.Options{VolumeName: "pv1", FSType: "ext4", User: map[string]string{"volumeID": "x"}, PodUID: "1", PodNamespace: "shop"}
		if change != nil {
			change(&o)
		}
		return o
	}
	inline := func(d *bridgeconfig.Driver) { d.Inline = true }
	pattern := func(d *bridgeconfig.Driver) { d.PVNamePattern = "pv.*" }
	bound := func(change func(*csivol.PersistentVolume)) func(*cluster) {
		return func(c *cluster) {
			pv := *c.fresh["pv1"]
			change(&pv)
			c.cached, c.fresh = nil, map[string]*csivol.PersistentVolume{"pv1": &pv}
		}
	}
	for _, tt := range []struct {
		name    string
		config  func(*bridgeconfig.Driver)
		options flex.Options
		cluster func(*cluster)
		want    string // of the error; empty: none
		mode    csivol.AccessMode
		asked   string
	}{
		{"its own", nil, ours(nil), nil, "", csivol.ReadWriteMany, "cached"},
		{"without a pod", nil, ours(func(o *flex.Options) { o.PodUID, o.PodNamespace = "", "" }), nil, "", csivol.ReadWriteMany, "cached"},
		{"re-created", nil, ours(nil), func(c *cluster) {
			c.cached = map[string]*csivol.PersistentVolume{"pv1": {Name: "pv1", FlexDriver: "example.com/disk", Source: csivol.Source(map[string]string{"volumeID": "old"}, "ext4")}}
		}, "", csivol.ReadWriteMany, "cached fresh"},
		{"none of that name", nil, ours(func(o *flex.Options) { o.VolumeName = "data" }), nil, "no PersistentVolume of that name: it is an inline volume", "", "fresh"},
		{"other options", nil, ours(func(o *flex.Options) { o.User = map[string]string{"volumeID": "root"} }), nil, "other options", "", "cached fresh"},
		{"one option more", nil, ours(func(o *flex.Options) { o.User = map[string]string{"volumeID": "x", "share": "y"} }), nil, "other options", "", "cached fresh"},
		{"another fsType", nil, ours(func(o *flex.Options) { o.FSType = "" }), nil, "another fsType", "", "cached fresh"},
		{"another namespace", nil, ours(func(o *flex.Options) { o.PodNamespace = "evil" }), nil, "in namespace shop, and the pod is in namespace evil", "", "cached fresh"},
		{"another driver's", nil, ours(nil), func(c *cluster) {
			c.cached, c.fresh = nil, map[string]*csivol.PersistentVolume{"pv1": {Name: "pv1", FlexDriver: "example.com/other"}}
		}, "is none of the driver example.com/disk", "", "fresh fresh"},
		{"a CSI volume by now", nil, ours(nil), func(c *cluster) {
			c.fresh = map[string]*csivol.PersistentVolume{"pv1": {Name: "pv1", CSI: csivol.Key{Driver: "disk.csi.example.com", Handle: "x"}}}
			c.cached = nil
		}, "is the CSI volume disk.csi.example.com/x by now", "", "fresh fresh"},
		{"inline, allowed", inline, ours(func(o *flex.Options) { o.VolumeName = "data" }), nil, "", "", "fresh"},
		{"inline by the name of another, allowed", inline, ours(func(o *flex.Options) { o.User = map[string]string{"volumeID": "root"} }), nil, "", "", "cached fresh"},
		{"away, known", nil, ours(nil), func(c *cluster) { c.err = away }, "", csivol.ReadWriteMany, "cached"},
		{"away, not known", nil, ours(nil), func(c *cluster) { c.err, c.cached = away, nil }, "has not seen it", "", "fresh"},
		{"away, not known, and called right", pattern, ours(nil), func(c *cluster) { c.err, c.cached = away, nil }, "has not seen it", "", "fresh"},
		{"away, not known, without a pod", nil, ours(func(o *flex.Options) { o.PodUID, o.PodNamespace = "", "" }), func(c *cluster) { c.err, c.cached = away, nil }, "has not seen it", "", "fresh"},
		{"away, not known, inline allowed", inline, ours(nil), func(c *cluster) { c.err, c.cached = away, nil }, "", "", "fresh"},
		{"away, known, and of another namespace", nil, ours(func(o *flex.Options) { o.PodNamespace = "evil" }), func(c *cluster) { c.err = away }, "in namespace shop", "", "cached fresh"},
		{"bound to no claim", nil, ours(nil), bound(func(pv *csivol.PersistentVolume) { pv.Claim = csivol.ObjectRef{} }), "bound to no claim", "", "fresh fresh"},
		{"bound to no claim yet", nil, ours(nil), bound(func(pv *csivol.PersistentVolume) { pv.Claim.UID = "" }), "bound to no claim", "", "fresh fresh"},
		{"bound to no claim, without a pod", nil, ours(func(o *flex.Options) { o.PodUID, o.PodNamespace = "", "" }), bound(func(pv *csivol.PersistentVolume) { pv.Claim = csivol.ObjectRef{} }), "bound to no claim", "", "fresh fresh"},
		{"released", nil, ours(nil), bound(func(pv *csivol.PersistentVolume) { pv.Released = true }), "bound to no claim", "", "fresh fresh"},
		{"bound to another namespace by now", nil, ours(nil), bound(func(pv *csivol.PersistentVolume) { pv.Claim = csivol.ObjectRef{Namespace: "bank", UID: "c2"} }), "in namespace bank", "", "fresh fresh"},
		{"away, and other options", nil, ours(func(o *flex.Options) { o.User = map[string]string{"volumeID": "root"} }), func(c *cluster) { c.err = away }, "no API server", "", "cached fresh"},
		{"forbidden", nil, ours(nil), func(c *cluster) {
			c.cached, c.err = nil, flex.Errorf(flex.CodePermissionDenied, "may not get PersistentVolumes")
		}, "may not get", "", "fresh"},
	} {
		c, m := driver(t, tt.config)
		k := newCluster()
		if tt.cluster != nil {
			tt.cluster(k)
		}
		v, err := drivers.New(c, m, nil, k, nil).Map(t.Context(), tt.options)
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%s: %v", tt.name, err)
		case tt.want == "" && (v.AccessMode != tt.mode || v.Inline != (tt.mode == "") || v.Inline != (v.Claim.UID == "")):
			t.Errorf("%s: mode %q, want %q; inline %t, claim %+v", tt.name, v.AccessMode, tt.mode, v.Inline, v.Claim)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%s: %v does not say %q", tt.name, err, tt.want)
		case flex.CodeOf(err) == flex.CodeUnimplemented:
			t.Errorf("%s: %v would be remembered for ever", tt.name, err)
		}
		if got := strings.Join(k.asked, " "); got != tt.asked {
			t.Errorf("%s: asked %s, want %s", tt.name, got, tt.asked)
		}
	}
}

// TestRead: a volume without a call has all but its pod and its secrets.
func TestRead(t *testing.T) {
	c, m := driver(t, nil)
	k := newCluster()
	v, err := drivers.New(c, m, nil, k, nil).Read(t.Context(), "pv1")
	if err != nil || v.Handle != "x" || v.FSType != "ext4" || v.AccessMode != csivol.ReadWriteMany {
		t.Errorf("%+v, %v", v, err)
	}
	k.fresh["pv1"] = &csivol.PersistentVolume{Name: "pv1", CSI: csivol.Key{Driver: "disk.csi.example.com", Handle: "x"}}
	if _, err := drivers.New(c, m, nil, k, nil).Read(t.Context(), "pv1"); flex.CodeOf(err) != flex.CodeFailedPrecondition {
		t.Errorf("of a CSI volume: %v", err)
	}
	k.err = flex.Errorf(flex.CodeUnavailable, "no API server")
	if _, err := drivers.New(c, m, nil, k, nil).Read(t.Context(), "pv1"); flex.CodeOf(err) != flex.CodeUnavailable {
		t.Errorf("without the API server: %v", err)
	}
}

// TestMayAttach: attach does not tell for which pod, and an inline volume can look
// like any PersistentVolume. So a pod that has it by its claim has to be there.
func TestMayAttach(t *testing.T) {
	o := flex.Options{VolumeName: "pv1", FSType: "ext4", User: map[string]string{"volumeID": "x"}}
	for _, tt := range []struct {
		name, node string
		err        error
		code       flex.Code // empty: it may
	}{
		{"its pod is there", "node-1", nil, ""},
		{"on a node without its pod", "node-2", nil, flex.CodeFailedPrecondition},
		{"not known", "node-1", flex.Errorf(flex.CodeUnavailable, "no API server"), flex.CodeUnavailable},
	} {
		c, m := driver(t, nil)
		k := newCluster()
		k.err = tt.err
		d := drivers.New(c, m, nil, k, nil)
		v, err := d.Map(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.RequirePod(t.Context(), v, tt.node); (err != nil) != (tt.code != "") || err != nil && flex.CodeOf(err) != tt.code {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	c, m := driver(t, func(d *bridgeconfig.Driver) { d.Inline = true })
	d := drivers.New(c, m, nil, newCluster(), nil)
	for _, o.VolumeName = range []string{"data", "pv1"} {
		v, err := d.Map(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.RequirePod(t.Context(), v, "node-2"); err != nil {
			t.Errorf("inline volumes are allowed, %s: %v", o.VolumeName, err)
		}
	}
}

// TestPolicy: the configuration comes before the CSIDriver object, and that
// before the defaults.
func TestPolicy(t *testing.T) {
	tokens := []csivol.TokenRequest{{Audience: "vault"}}
	info := csivol.DriverInfo{AttachRequired: true, PodInfoOnMount: true, RequiresRepublish: true, FSGroupPolicy: "File", Tokens: tokens, TokensInSecrets: true}
	all := func(d *bridgeconfig.Driver) {
		d.PodInfo, d.RequiresRepublish, d.FSGroup, d.Attach = new(false), new(false), storagev1.NoneFSGroupPolicy, bridgeconfig.AttachNone
	}
	for _, tt := range []struct {
		name          string
		config        func(*bridgeconfig.Driver)
		found, synced bool
		none          bool // no access to the cluster
		want          bridge.Policy
	}{
		{"no cluster", nil, false, false, true, bridge.Policy{FSGroup: storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy}},
		{"no cluster, all said", all, false, false, true, bridge.Policy{FSGroup: storagev1.NoneFSGroupPolicy}},
		{"object", nil, true, true, false, bridge.Policy{Attach: bridge.NeedAttach, PodInfo: true, Republish: true, FSGroup: storagev1.FileFSGroupPolicy}},
		{"object of an earlier run", nil, true, false, false, bridge.Policy{Attach: bridge.NeedAttach, PodInfo: true, Republish: true, FSGroup: storagev1.FileFSGroupPolicy}},
		{"object, all said", all, true, true, false, bridge.Policy{Attach: bridge.NeedAttach, FSGroup: storagev1.NoneFSGroupPolicy}},
		{"no object", nil, false, true, false, bridge.Policy{Attach: bridge.NeedByController, FSGroup: storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy}},
		{"not known, all said", all, false, false, false, bridge.Policy{FSGroup: storagev1.NoneFSGroupPolicy}},
		{"tokens", func(d *bridgeconfig.Driver) { d.ServiceAccountTokens = true }, true, true, false, bridge.Policy{
			Attach: bridge.NeedAttach, PodInfo: true, Republish: true, FSGroup: storagev1.FileFSGroupPolicy, Tokens: tokens, TokensInSecrets: true,
		}},
	} {
		c, m := driver(t, tt.config)
		k := newCluster()
		k.found, k.synced = tt.found, tt.synced
		if tt.found {
			k.info = info
		}
		var in drivers.Cluster = k
		if tt.none {
			in = nil
		}
		got, err := drivers.New(c, m, nil, in, nil).Policy(t.Context())
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// TestPolicyNotKnown: nothing is guessed of what was never read.
func TestPolicyNotKnown(t *testing.T) {
	c, m := driver(t, nil)
	k := newCluster()
	k.found, k.synced = false, false
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // do not wait
	if p, err := drivers.New(c, m, nil, k, nil).Policy(ctx); flex.CodeOf(err) != flex.CodeUnavailable || !strings.Contains(err.Error(), "CSIDriver object disk.csi.example.com") {
		t.Errorf("%+v, %v", p, err)
	}
}

// TestAttachNeeds: what attaching needs to know besides the volume.
func TestAttachNeeds(t *testing.T) {
	c, m := driver(t, nil)
	k := newCluster()
	d := drivers.New(c, m, nil, k, attacher{})
	if p, err := d.Policy(t.Context()); err != nil || p.Attach != bridge.NeedNoAttach {
		t.Errorf("%+v, %v", p, err)
	}
	if d.AttachSecret != nil {
		t.Errorf("%+v", d.AttachSecret)
	}
	c, m = driver(t, func(d *bridgeconfig.Driver) {
		d.Secrets.ControllerPublish = &bridgeconfig.SecretSource{SecretRef: &bridgeconfig.SecretRef{Name: "attach", Namespace: "ns"}}
	})
	if d := drivers.New(c, m, nil, k, attacher{}); *d.AttachSecret != (csivol.SecretRef{Name: "attach", Namespace: "ns"}) || d.AttachSecretsHere {
		t.Errorf("%+v, here: %t", d.AttachSecret, d.AttachSecretsHere)
	}
	for _, here := range []*bridgeconfig.SecretSource{{File: "/secret"}, {FromFlexSecret: map[string]string{"a": "b"}}} {
		c, m = driver(t, func(d *bridgeconfig.Driver) { d.Secrets.ControllerPublish = here })
		if d := drivers.New(c, m, nil, k, attacher{}); d.AttachSecret != nil || !d.AttachSecretsHere {
			t.Errorf("%+v: %+v, here: %t", here, d.AttachSecret, d.AttachSecretsHere)
		}
	}
}
