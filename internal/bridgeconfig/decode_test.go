package bridgeconfig_test

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/strict"
)

var update = flag.Bool("update", false, "update golden files")

func read(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

const head = "apiVersion: flex2csi.io/v1alpha1\nkind: BridgeConfiguration\n"

func TestDecodeSmallest(t *testing.T) {
	got, err := bridgeconfig.Loader{}.Decode(read(t, "smallest.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	want := bridgeconfig.DefaultDriver()
	want.FlexDriver, want.CSIDriver, want.Endpoint = "example.com/disk", "loop.csi.example.com", "unix:///run/csi/loop.sock"
	if diff := cmp.Diff(&bridgeconfig.Configuration{APIVersion: bridgeconfig.APIVersion, Kind: bridgeconfig.Kind, Drivers: []bridgeconfig.Driver{want}}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestDecodeFull(t *testing.T) {
	got, err := bridgeconfig.Loader{}.Decode(read(t, "full.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	share := bridgeconfig.DefaultDriver()
	share.FlexDriver, share.CSIDriver = "example.com/share", "nfs.csi.example.com"
	share.Attach, share.FSGroup, share.Inline = bridgeconfig.AttachNone, storagev1.NoneFSGroupPolicy, true
	cloud := bridgeconfig.DefaultDriver()
	cloud.FlexDriver, cloud.CSIDriver, cloud.Attach = "example.com/cloud", "cloud.csi.example.com", bridgeconfig.AttachVA
	cloud.PodInfo, cloud.ServiceAccountTokens = new(false), true
	cloud.Secrets.ControllerPublish = &bridgeconfig.SecretSource{SecretRef: &bridgeconfig.SecretRef{Name: "cloud", Namespace: "storage"}}
	if diff := cmp.Diff([]bridgeconfig.Driver{fullDriver(), share, cloud}, got.Drivers); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func fullDriver() bridgeconfig.Driver {
	return bridgeconfig.Driver{
		FlexDriver:         "example.com/disk",
		CSIDriver:          "loop.csi.example.com",
		Endpoint:           "unix:///run/csi/loop.sock",
		ControllerEndpoint: "/run/csi/controller.sock",
		Attach:             bridgeconfig.AttachController,
		Volume: bridgeconfig.VolumeMapping{
			Handle:     `options.pool + "/" + options.image`,
			Context:    "{\"pool\": options.pool,\n \"mounter\": options.?mounter.orValue(\"kernel\")}\n",
			MountFlags: `["noatime"]`,
			FSType:     `fsType == "" ? "ext4" : fsType`,
			AccessMode: `readOnly ? "ReadOnlyMany" : "ReadWriteMany"`,
		},
		Secrets: bridgeconfig.Secrets{
			ControllerPublish: &bridgeconfig.SecretSource{File: "/etc/flex2csi/controller.yaml"},
			NodeStage:         &bridgeconfig.SecretSource{FromFlexSecret: map[string]string{"userID": "user", "userKey": "key"}},
			NodePublish:       &bridgeconfig.SecretSource{FromFlexSecret: map[string]string{"userID": "user"}, Optional: []string{"userID"}},
			NodeExpand:        &bridgeconfig.SecretSource{File: "/etc/flex2csi/password", Key: "password"},
			ControllerExpand:  &bridgeconfig.SecretSource{File: "/etc/flex2csi/controller.yaml"},
		},
		PodInfo:           new(true),
		RequiresRepublish: new(true),
		RepairInUse:       true,
		FSGroup:           storagev1.FileFSGroupPolicy,
		PVNamePattern:     "pvc-[0-9a-f-]{36}",
		Timeout:           bridgeconfig.DefaultTimeout,
	}
}

// TestEncode: what flex2csi check prints.
func TestEncode(t *testing.T) {
	for _, name := range []string{"smallest", "full"} {
		t.Run(name, func(t *testing.T) {
			c, err := bridgeconfig.Loader{}.Decode(read(t, name+".yaml"))
			if err != nil {
				t.Fatal(err)
			}
			got, err := c.Encode()
			if err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", name+".golden.yaml")
			if *update {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(string(read(t, name+".golden.yaml")), string(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestDecodeFaults(t *testing.T) {
	tests := []struct {
		name string
		data string
		want []string // each fault
	}{
		{"empty", "\n# nothing\n", []string{"empty"}},
		{"no YAML", "a: b: c\n", []string{"not YAML: mapping values are not allowed in this context"}},
		{"tab", "a:\n\t- b\n", []string{"line 2: not YAML: found character that cannot start any token"}},
		{"not text", "a: \xff", []string{"not UTF-8 text"}},
		{"no object", "- 1", []string{"want a YAML object but got an array"}},
		{"two documents", head + "---\n" + head, []string{"line 4: a second document (want one)"}},
		{"alias", "a: &x 1\nb: *x\n", []string{"line 1: anchors and aliases (& and *) are not supported: write it out (or put quotes around the value)"}},
		{"merge key", head + "<<: {a: 1}\n", []string{"line 3: a key that is no plain text"}},
		{"tag", "a: !!binary aGk=\n", []string{`line 1: the tag "!!binary" is not supported`}},
		{"nothing said", "{}", []string{
			`apiVersion: missing (want "flex2csi.io/v1alpha1")`,
			`kind: missing (want "BridgeConfiguration")`,
		}},
		{
			"another version hides what follows from it",
			"apiVersion: flex2csi.io/v1\nkind: BridgeConfiguration\nbackends: []\n",
			[]string{`apiVersion (line 1): "flex2csi.io/v1" is not known to this flex2csi (want "flex2csi.io/v1alpha1")`},
		},
		{"no drivers", head, []string{"drivers: missing: want at least one driver"}},
		{"drivers is no list", head + "drivers: {}\n", []string{"drivers (line 3): want an array but got an object"}},
		{"empty driver", head + "drivers:\n- {}\n- x\n", []string{
			`drivers[0].flexDriver (line 4): missing (want "vendor/name", as in spec.flexVolume.driver)`,
			"drivers[0].csiDriver (line 4): missing (want the name that the CSI driver gives itself, such as disk.csi.example.com)",
			`drivers[1] (line 5): want an object but got the string "x"`,
			`drivers[1].flexDriver (line 5): missing (want "vendor/name", as in spec.flexVolume.driver)`,
			"drivers[1].csiDriver (line 5): missing (want the name that the CSI driver gives itself, such as disk.csi.example.com)",
		}},
		{"many", string(read(t, "faults.yaml")), strings.Split(strings.TrimSpace(string(read(t, "faults.txt"))), "\n")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := bridgeconfig.Loader{}.Decode([]byte(tt.data))
			got := faults(t, err)
			if tt.name == "many" && *update {
				if err := os.WriteFile("testdata/faults.txt", []byte(strings.Join(got, "\n")+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func faults(t *testing.T, err error) []string {
	t.Helper()
	invalid, ok := errors.AsType[*strict.InvalidError](err)
	if !ok {
		t.Fatalf("error %v is no *InvalidError", err)
	}
	var got []string
	for _, f := range invalid.Faults {
		got = append(got, f.String())
	}
	return got
}

// TestChecks: what other packages find is reported with the rest, in its place.
func TestChecks(t *testing.T) {
	check := func(c *bridgeconfig.Configuration) []strict.Fault {
		return []strict.Fault{{Path: bridgeconfig.Path(0) + ".volume.handle", Message: "no such option"}}
	}
	_, err := bridgeconfig.Loader{}.Decode([]byte(head+"drivers:\n- flexDriver: a\n  volume:\n    handle: x\n  csiDriver: ''\n"), check)
	want := []string{
		`drivers[0].flexDriver (line 4): driver name "a" has no vendor, which flex2csi does not support: want vendor/name, such as example.com/disk, or make a PersistentVolume of the CSI driver in place of each volume`,
		"drivers[0].volume.handle (line 6): no such option",
		"drivers[0].csiDriver (line 7): missing (want the name that the CSI driver gives itself, such as disk.csi.example.com)",
	}
	if diff := cmp.Diff(want, faults(t, err)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestEncodeRefusesInvalid(t *testing.T) {
	c := &bridgeconfig.Configuration{APIVersion: bridgeconfig.APIVersion, Kind: bridgeconfig.Kind, Drivers: []bridgeconfig.Driver{fullDriver(), fullDriver()}}
	if _, err := c.Encode(); err == nil || !strings.Contains(err.Error(), "drivers[1].csiDriver: \"loop.csi.example.com\" is that of another entry with the same flexDriver") {
		t.Errorf("error %v", err)
	}
}

func TestNotes(t *testing.T) {
	c, err := bridgeconfig.Loader{}.Decode(read(t, "full.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	c.Drivers[1].Secrets = c.Drivers[0].Secrets
	c.Drivers = append(c.Drivers, bridgeconfig.DefaultDriver())
	for inCluster, want := range map[bool][]string{
		false: {"drivers[1].inline", "drivers[2].inline", "drivers[2].attach", "drivers[2].serviceAccountTokens", "drivers[2].secrets.controllerPublish.secretRef", "drivers[3].inline"},
		true:  {"drivers[1].inline"},
	} {
		var got []string
		for _, n := range c.Notes(inCluster) {
			got = append(got, n.Path)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("in a cluster: %t (-want +got):\n%s", inCluster, diff)
		}
	}
}

// TestLoadFaults: whatever lies at the path, Load says so at once.
func TestLoadFaults(t *testing.T) {
	tests := []struct {
		name string
		make func(path string) error
		want string
	}{
		{"missing", func(string) error { return nil }, "no such file"},
		{"directory", func(p string) error { return os.Mkdir(p, 0o755) }, "not a regular file"},
		{"FIFO", func(p string) error { return syscall.Mkfifo(p, 0o644) }, "not a regular file"},
		{"too large", func(p string) error {
			return os.WriteFile(p, []byte(strings.Repeat(" ", bridgeconfig.MaxSize+1)), 0o644)
		}, "larger than 1024 KiB"},
		{"broken", func(p string) error { return os.WriteFile(p, []byte(head), 0o644) }, "drivers: missing"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "bridge.yaml")
			if err := tt.make(path); err != nil {
				t.Fatal(err)
			}
			_, err := bridgeconfig.Loader{}.Load(path)
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Count(err.Error(), path) != 1 {
				t.Errorf("error %v does not say %q and the path once", err, tt.want)
			}
		})
	}
}

func TestLoad(t *testing.T) {
	c, err := bridgeconfig.Loader{}.Load("testdata/full.yaml")
	if err != nil || len(c.Drivers) != 3 {
		t.Errorf("got %v, %v", c, err)
	}
}

// TestDecodeEnds: a file at the size limit with as many faults as it can
// hold is answered soon.
func TestDecodeEnds(t *testing.T) {
	fill := func(head, unit, tail string) string {
		return head + strings.Repeat(unit, (256<<10-len(head)-len(tail))/len(unit)) + tail
	}
	tests := map[string]string{
		"unknown fields": fill(head, "a: 1\n", ""),
		"empty drivers":  fill(head+"drivers:\n", "- {}\n", ""),
		"deep":           fill("", "[", ""),
		"deep enough":    strings.Repeat("[", 9000) + strings.Repeat("]", 9000),
		"one string":     fill(head+"drivers:\n- csiDriver: \"", `\"`, "\"\n"),
	}
	for name, data := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := bridgeconfig.Loader{}.Decode([]byte(data))
			if err == nil || err.Error() == "" {
				t.Errorf("accepted, or no text: %v", err)
			}
		})
	}
}

// FuzzDecode: whatever the file holds, Decode returns, its error is one line,
// and what it accepts survives being written and read again.
func FuzzDecode(f *testing.F) {
	for _, name := range []string{"smallest.yaml", "full.yaml", "full.golden.yaml", "faults.yaml"} {
		f.Add(read(f, name))
	}
	f.Add([]byte(head + "drivers: [{flexDriver: a/b, csiDriver: c, endpoint: /x, volume: {handle: \"\\n \\x85\"}}]"))
	f.Add([]byte("a: &x [*x]"))
	f.Add([]byte("\xef\xbb\xbf{}"))
	f.Add([]byte(strings.Repeat("[{a: ", 200)))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := bridgeconfig.Loader{}.Decode(data)
		if err != nil {
			if text := err.Error(); text == "" || strings.ContainsFunc(text, unicode.IsControl) {
				t.Fatalf("error is not one line of text: %q", text)
			}
			return
		}
		encoded, err := c.Encode()
		if err != nil {
			t.Fatalf("what was decoded cannot be encoded: %v", err)
		}
		again, err := bridgeconfig.Loader{}.Decode(encoded)
		if err != nil {
			t.Fatalf("what was encoded cannot be decoded: %v\n%s", err, encoded)
		}
		if diff := cmp.Diff(c, again); diff != "" {
			t.Fatalf("changed by writing and reading (-before +after):\n%s", diff)
		}
	})
}
