package mapping_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/mapping"
	"github.com/flex2csi/flex2csi/internal/strict"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

const flexDriver = "example.com/disk"

// mapper compiles the default configuration with changes.
func mapper(t testing.TB, change func(*bridgeconfig.Driver)) *mapping.Mapper {
	t.Helper()
	mappers, err := mapping.Compile(configuration(change))
	if err != nil {
		t.Fatal(err)
	}
	return mappers[0]
}

func configuration(change func(*bridgeconfig.Driver)) *bridgeconfig.Configuration {
	d := bridgeconfig.DefaultDriver()
	d.FlexDriver, d.CSIDriver = flexDriver, "disk.csi.example.com"
	if change != nil {
		change(&d)
	}
	return &bridgeconfig.Configuration{APIVersion: bridgeconfig.APIVersion, Kind: bridgeconfig.Kind, Drivers: []bridgeconfig.Driver{d}}
}

// volume is what the tests' volumes have in common.
func volume(change func(*csivol.Volume)) *csivol.Volume {
	v := &csivol.Volume{
		FlexDriver: flexDriver,
		Driver:     "disk.csi.example.com",
		Handle:     "vol-1",
		Name:       "pv1",
		Context:    map[string]string{},
		MountFlags: []string{},
	}
	change(v)
	return v
}

func user(pairs ...string) map[string]string {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return m
}

func TestMap(t *testing.T) {
	group := int64(2000)
	tests := []struct {
		name    string
		config  func(*bridgeconfig.Driver)
		options flex.Options
		want    *csivol.Volume
	}{
		{
			"by convention",
			nil,
			flex.Options{
				VolumeName: "pv1", FSType: "ext4", ReadOnly: true, FSGroup: &group,
				PodName: "web-0", PodNamespace: "shop", PodUID: "0a1b", ServiceAccountName: "web",
				User: user("volumeHandle", "vol-1", "tier", "fast", "mountOptions", " noatime,, discard "),
			},
			volume(func(v *csivol.Volume) {
				v.Context = map[string]string{"tier": "fast"}
				v.MountFlags = []string{"noatime", "discard"}
				v.FSType, v.ReadOnly, v.FSGroup = "ext4", true, &group
				v.Pod = csivol.Pod{Name: "web-0", Namespace: "shop", UID: "0a1b", ServiceAccount: "web"}
			}),
		},
		{
			"by convention, the other name",
			nil,
			flex.Options{VolumeName: "pv1", User: user("volumeID", "vol-1")},
			volume(func(*csivol.Volume) {}),
		},
		{
			"by convention, both names",
			nil,
			flex.Options{VolumeName: "pv1", User: user("volumeID", "x", "volumeHandle", "vol-1")},
			volume(func(v *csivol.Volume) { v.Context = map[string]string{"volumeID": "x"} }),
		},
		{
			"expressions",
			func(d *bridgeconfig.Driver) {
				d.Volume = bridgeconfig.VolumeMapping{
					Handle:     `[options.pool, options.image.lowerAscii()].join("/")`,
					Context:    `{"pool": options.pool, "owner": pod.namespace + "." + pod.name + "." + pod.serviceAccount + "." + pod.uid, ?"zone": options.?zone}`,
					MountFlags: `readOnly ? ["noload"] : []`,
					FSType:     `fsType == "" ? "xfs" : fsType`,
					AccessMode: `pvName.startsWith("pv") ? "ReadWriteMany" : "ReadWriteOnce"`,
				}
			},
			flex.Options{
				VolumeName: "pv1", ReadOnly: true, PodUID: "0a1b", PodName: "web-0", PodNamespace: "shop",
				User: user("pool", "p", "image", "IMG"),
			},
			volume(func(v *csivol.Volume) {
				v.Handle, v.FSType, v.AccessMode, v.ReadOnly = "p/img", "xfs", csivol.ReadWriteMany, true
				v.Context = map[string]string{"pool": "p", "owner": "shop.web-0..0a1b"}
				v.MountFlags = []string{"noload"}
				v.Pod = csivol.Pod{Name: "web-0", Namespace: "shop", UID: "0a1b"}
			}),
		},
		{
			"options by their prefix",
			func(d *bridgeconfig.Driver) {
				d.Volume.Context = `options.transformMapEntry(k, v, k.startsWith("csi."), {k.substring(4): v})`
			},
			flex.Options{VolumeName: "pv1", User: user("volumeID", "vol-1", "csi.tier", "fast", "other", "x")},
			volume(func(v *csivol.Volume) { v.Context = map[string]string{"tier": "fast"} }),
		},
		{
			"empty literals",
			func(d *bridgeconfig.Driver) { d.Volume.Context, d.Volume.MountFlags = "{}", "[]" },
			flex.Options{VolumeName: "pv1", User: user("volumeID", "vol-1", "other", "x")},
			volume(func(*csivol.Volume) {}),
		},
		{
			"a long handle that is allowed",
			nil,
			flex.Options{VolumeName: "pv1", User: user("volumeID", strings.Repeat("x", 1024))},
			volume(func(v *csivol.Volume) { v.Handle = strings.Repeat("x", 1024) }),
		},
		{
			"what a provisioner leaves in the context",
			func(d *bridgeconfig.Driver) {
				d.Volume.Context = `{"csi.storage.k8s.io/pv/name": pvName, "storage.kubernetes.io/csiProvisionerIdentity": options.identity}`
			},
			flex.Options{VolumeName: "pv1", User: user("volumeID", "vol-1", "identity", "1-8081-x")},
			volume(func(v *csivol.Volume) {
				v.Context = map[string]string{"csi.storage.k8s.io/pv/name": "pv1", "storage.kubernetes.io/csiProvisionerIdentity": "1-8081-x"}
			}),
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := mapper(t, tt.config).Map(t.Context(), tt.options, nil)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestMapWithPersistentVolume: what a call does not tell.
func TestMapWithPersistentVolume(t *testing.T) {
	pv := &csivol.PersistentVolume{AccessModes: []csivol.AccessMode{csivol.ReadOnlyMany, csivol.ReadWriteMany}}
	options := flex.Options{VolumeName: "pv1", User: user("volumeID", "vol-1")}
	want := volume(func(v *csivol.Volume) {
		v.AccessMode, v.AccessModes = csivol.ReadOnlyMany, pv.AccessModes
	})
	for name, change := range map[string]func(*bridgeconfig.Driver){
		"the first": nil,
		"one of all": func(d *bridgeconfig.Driver) {
			d.Volume.AccessMode = `"ReadOnlyMany" in accessModes ? "ReadOnlyMany" : ""`
		},
	} {
		got, err := mapper(t, change).Map(t.Context(), options, pv)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestMapErrors(t *testing.T) {
	tests := []struct {
		name   string
		config func(*bridgeconfig.Driver)
		user   map[string]string
		want   string // of the text after "make no volume of the CSI driver …: "
	}{
		{"no handle", nil, user("a", "b"), `the handle is empty: give the volume the option volumeHandle or volumeID, or say in the configuration what its handle is; now it is volume.handle (options.?volumeHandle.or(options.?volumeID).orValue(""))`},
		{"no options", nil, nil, "the handle is empty: "},
		{"missing options", func(d *bridgeconfig.Driver) {
			d.Volume.Handle, d.Volume.Context = "options.pool", `{"a": options["b c"]}`
		}, user("volumeID", "x"), `the volume has no option "pool", which volume.handle (options.pool) wants; the volume has no option "b c", which volume.context ({"a": options["b c"]}) wants`},
		{"pod where there is none", func(d *bridgeconfig.Driver) { d.Volume.Handle = `"x" + pod.uid` }, nil, `volume.handle ("x" + pod.uid) uses the pod, which the kubelet tells in mount only`},
		{"conversion", func(d *bridgeconfig.Driver) { d.Volume.Handle = `string(int(options.n) + 1)` }, user("n", "one"), "volume.handle (string(int(options.n) + 1)): "},
		{"access mode", func(d *bridgeconfig.Driver) { d.Volume.AccessMode = `options.mode` }, user("volumeID", "x", "mode", "RWO"), `"RWO" is no access mode (want ReadWriteOnce, ReadOnlyMany, ReadWriteMany or ReadWriteOncePod); it comes from volume.accessMode (options.mode)`},
		{"very long handle", nil, user("volumeID", strings.Repeat("x", 1025)), "the handle has 1025 bytes and may have 1024"},
		{"long context", nil, user("volumeID", "x", "k", strings.Repeat("x", 64<<10)), "the context has 65537 bytes and may have 65536"},
		{"long mount flags", nil, user("volumeID", "x", "mountOptions", strings.Repeat("n", 66000)), "the mount flags have 66000 bytes together and may have 65536"},
		{"control character", nil, user("volumeID", "x\ny"), "the handle has a control character in it"},
		{"bad mount flag", nil, user("volumeID", "x", "mountOptions", "a\x00b"), "a mount flag is empty or has a control character in it"},
		{"empty mount flag", func(d *bridgeconfig.Driver) { d.Volume.MountFlags = `[""]` }, user("volumeID", "x"), "a mount flag is empty or has a control character in it"},
		{"what only we may say", func(d *bridgeconfig.Driver) {
			d.Volume.Context = `{"csi.storage.k8s.io/pod.namespace": "kube-system"}`
		}, user("volumeID", "x"), `the context has the key "csi.storage.k8s.io/pod.namespace", which only flex2csi may set (see podInfo)`},
		{"cost", func(d *bridgeconfig.Driver) {
			d.Volume.Handle = `options.map(a, options.map(b, options.map(c, options.map(d, d)))).size() > 0 ? "a" : "b"`
		}, many(100), "volume.handle (options.map(a, options.map(b, options.map(c, options.map(d, d)))…) takes more time or memory than it may for these options: "},
		{"memory", func(d *bridgeconfig.Driver) {
			d.Volume.Handle = `options.s.replace("", options.s).replace("", options.s)`
		}, user("s", strings.Repeat("x", 4000)), `volume.handle (options.s.replace("", options.s).replace("", options.s)) takes more time or memory`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := mapper(t, tt.config).Map(t.Context(), flex.Options{VolumeName: "pv1", User: tt.user}, nil)
			want := `the options of volume "pv1" make no volume of the CSI driver disk.csi.example.com: ` + tt.want
			if err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("got  %v\nwant %s", err, want)
			}
			if got := flex.CodeOf(err); got != flex.CodeInvalidArgument {
				t.Errorf("code %s", got)
			}
		})
	}
}

func many(n int) map[string]string {
	m := map[string]string{"volumeID": "vol-1"}
	for i := range n {
		m[fmt.Sprintf("option%d", i)] = "value"
	}
	return m
}

// TestMapManyOptions: more options than fit into a volume context are still
// within what an expression may cost.
func TestMapManyOptions(t *testing.T) {
	m := mapper(t, nil)
	v, err := m.Map(t.Context(), flex.Options{VolumeName: "pv1", User: many(3000)}, nil)
	if err != nil || len(v.Context) != 3000 {
		t.Errorf("%v", err)
	}
}

func TestInline(t *testing.T) {
	pattern := func(d *bridgeconfig.Driver) { d.PVNamePattern = "pvc-.*|legacy" }
	tests := []struct {
		config func(*bridgeconfig.Driver)
		name   string
		ok     bool
	}{
		{nil, "data", true}, // nothing tells
		{pattern, "pvc-1", true},
		{pattern, "legacy", true},
		{pattern, "data", false},
		{pattern, "my-pvc-1", false},
		{pattern, "legacy\n", false},
		{pattern, "", false},
		{func(d *bridgeconfig.Driver) { d.Inline = true }, "data", true},
	}
	for _, tt := range tests {
		_, err := mapper(t, tt.config).Map(t.Context(), flex.Options{VolumeName: tt.name, User: user("volumeID", "x")}, nil)
		if tt.ok != (err == nil) {
			t.Errorf("%q: %v", tt.name, err)
		}
		if err != nil && flex.CodeOf(err) != flex.CodePermissionDenied {
			t.Errorf("%q: code %s", tt.name, flex.CodeOf(err))
		}
	}
}

func TestCompileFaults(t *testing.T) {
	tests := []struct {
		name   string
		config func(*bridgeconfig.Driver)
		want   []string
	}{
		{"all expressions", func(d *bridgeconfig.Driver) {
			d.Volume = bridgeconfig.VolumeMapping{
				Handle:     "optons.x",
				Context:    `{"a": 1}`,
				MountFlags: `options.mountOptions`,
				FSType:     "readOnly",
				AccessMode: `pod.nmae`,
			}
		}, []string{
			"drivers[0].volume.handle: undeclared reference to 'optons' (did you mean 'options'?) (column 1)",
			"drivers[0].volume.context: gives map(string, int), want map(string, string)",
			"drivers[0].volume.mountFlags: gives string, want list(string)" + `; put it into brackets, or split it: splitOptions(options.flags)`,
			"drivers[0].volume.fsType: gives bool, want string; string(…) makes a text of it",
			"drivers[0].volume.accessMode: undefined field 'nmae' (column 4); pod has name, namespace, uid and serviceAccount",
		}},
		{"mixed types", func(d *bridgeconfig.Driver) { d.Volume.MountFlags = `["a", 1]` }, []string{
			"drivers[0].volume.mountFlags: expected type 'string' but found 'int' (column 7)",
		}},
		{"two lines", func(d *bridgeconfig.Driver) { d.Volume.Handle = "options.a +\n  b + c + d + e" }, []string{
			"drivers[0].volume.handle: undeclared reference to 'b' (line 2, column 3 of the expression); undeclared reference to 'c' (line 2, column 7 of the expression); undeclared reference to 'd' (line 2, column 11 of the expression); and 1 more; put a text into double quotes; an option is options.NAME",
		}},
		{"regular expression", func(d *bridgeconfig.Driver) { d.Volume.Handle = `pvName.matches("[") ? "a" : "b"` }, []string{
			"drivers[0].volume.handle: error parsing regexp: missing closing ]: `[`",
		}},
		{"no secrets for expressions", func(d *bridgeconfig.Driver) { d.Volume.Handle = "secrets.password" }, []string{
			"drivers[0].volume.handle: undeclared reference to 'secrets' (column 1); expressions see no secrets: name them in the section secrets",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := mapping.Compile(configuration(tt.config))
			invalid, ok := errors.AsType[*strict.InvalidError](err)
			if !ok {
				t.Fatalf("error %v is no *InvalidError", err)
			}
			var got []string
			for _, f := range invalid.Faults {
				got = append(got, f.String())
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestMapSideBySide is for the race detector.
func TestMapSideBySide(t *testing.T) {
	m := mapper(t, nil)
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			handle := fmt.Sprint("vol-", i)
			for range 50 {
				v, err := m.Map(t.Context(), flex.Options{VolumeName: "pv", User: user("volumeID", handle)}, nil)
				if err != nil || v.Handle != handle {
					t.Errorf("got %v, %v", v, err)
				}
			}
		})
	}
	group.Wait()
}

func BenchmarkMap(b *testing.B) {
	m := mapper(b, nil)
	options := flex.Options{VolumeName: "pv", User: user("volumeID", "vol-1", "a", "b", "mountOptions", "noatime,nodev")}
	for b.Loop() {
		if _, err := m.Map(b.Context(), options, nil); err != nil {
			b.Fatal(err)
		}
	}
}
