package driverconfig_test

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/flex2csi/flex2csi/internal/driverconfig"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

const head = `"apiVersion": "flex2csi.io/v1alpha1", "kind": "FlexDriverConfiguration", "driver": "example.com/disk"`

// full has every field in it.
const full = `{
  "apiVersion": "flex2csi.io/v1alpha1",
  "kind": "FlexDriverConfiguration",
  "driver": "example.com/disk",
  "backend": "local",
  "capabilities": {
    "attach": true,
    "selinuxRelabel": false,
    "fsGroup": true,
    "supportsMetrics": false,
    "requiresFSResize": false
  },
  "fsGroupPolicy": "kubelet",
  "kubeletDir": "/var/lib/kubelet",
  "directoryRoots": [
    "/srv/shared"
  ],
  "imageRoots": [
    "/srv/images",
    "/data"
  ],
  "deviceRoots": [
    "/dev/disk"
  ],
  "sourceTypes": [
    "nfs",
    "fuse.sshfs"
  ],
  "maxSize": "1Ti",
  "maxSizePerNamespace": "4Ti",
  "maxImagesPerNamespace": 7,
  "timeouts": {
    "mount": "1m50s",
    "waitforattach": "9m0s"
  },
  "log": {
    "file": "/var/log/flexdriver.log",
    "level": "debug"
  }
}
`

func disk() driverconfig.DriverName {
	return driverconfig.DriverName{Vendor: "example.com", Name: "disk"}
}

func fullConfiguration() *driverconfig.Configuration {
	return &driverconfig.Configuration{
		APIVersion:    driverconfig.APIVersion,
		Kind:          driverconfig.Kind,
		Driver:        disk(),
		Backend:       driverconfig.BackendLocal,
		Capabilities:  flex.Capabilities{Attach: true, FSGroup: true},
		FSGroupPolicy: driverconfig.FSGroupKubelet,
		KubeletDir:    "/var/lib/kubelet",
		Allowed: driverconfig.Allowed{
			DirectoryRoots: []string{"/srv/shared"},
			ImageRoots:     []string{"/srv/images", "/data"},
			DeviceRoots:    []string{"/dev/disk"},
			SourceTypes:    []string{"nfs", "fuse.sshfs"},
			MaxSize:        "1Ti",

			MaxSizePerNamespace:   "4Ti",
			MaxImagesPerNamespace: 7,
		},
		Timeouts: map[flex.Command]driverconfig.Duration{
			flex.CommandMount:         driverconfig.Duration(110 * time.Second),
			flex.CommandWaitForAttach: driverconfig.Duration(9 * time.Minute),
		},
		Log: driverconfig.Log{File: "/var/log/flexdriver.log", Level: "debug"},
	}
}

func TestDecode(t *testing.T) {
	withFSGroup := driverconfig.Default(disk(), driverconfig.BackendLocal)
	withFSGroup.FSGroupPolicy = driverconfig.FSGroupKubelet
	withFSGroup.Capabilities.FSGroup = true

	tests := []struct {
		name string
		data string
		want *driverconfig.Configuration
	}{
		{"defaults", `{` + head + `}`, driverconfig.Default(disk(), driverconfig.BackendLocal)},
		{"everything", full, fullConfiguration()},
		{"the capability follows the policy", `{` + head + `, "fsGroupPolicy": "kubelet"}`, withFSGroup},
		{"csi", `{` + head + `, "backend": "csi"}`, driverconfig.Default(disk(), driverconfig.BackendCSI)},
		{"csi, all said", `{` + head + `, "backend": "csi", "socket": "/run/s", "stateDir": "/var/s", "controllerSocket": "../.s", "capabilities": {"attach": true}}`, func() *driverconfig.Configuration {
			c := driverconfig.Default(disk(), driverconfig.BackendCSI)
			c.Socket, c.StateDir, c.ControllerSocket, c.Capabilities.Attach = "/run/s", "/var/s", "../.s", true
			return c
		}()},
		{"journal", `{` + head + `, "log": {"file": "journal"}}`, func() *driverconfig.Configuration {
			c := driverconfig.Default(disk(), driverconfig.BackendLocal)
			c.Log.File = driverconfig.LogJournal
			return c
		}()},
		{
			"the policy may be repeated", `{` + head + `, "fsGroupPolicy": "none", "capabilities": {"fsGroup": false}, "backend": "local"}`,
			func() *driverconfig.Configuration {
				c := driverconfig.Default(disk(), driverconfig.BackendLocal)
				c.FSGroupPolicy = driverconfig.FSGroupNone
				return c
			}(),
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := driverconfig.Decode([]byte(tt.data))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
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
		{"empty", " \n", []string{"empty"}},
		{"no JSON", "{\n  \"apiVersion\": nope}", []string{"not JSON: invalid character 'o' in literal null (expecting 'u') (line 2, column 18)"}},
		{"cut off", `{"apiVersion": "flex2`, []string{"not JSON: unexpected end of JSON input (line 1, column 21)"}},
		{"not text", "{\"\xff\": 1}", []string{"not UTF-8 text"}},
		{"no object", `[1]`, []string{"want a JSON object but got an array"}},
		{"a string", ` "é\n" `, []string{`want a JSON object but got the string "é\n"`}},
		{"null", `null`, []string{"want a JSON object but got null"}},
		{"two objects", `{} {}`, []string{"not JSON: invalid character '{' after top-level value (line 1, column 4)"}},
		{"nothing said", `{}`, []string{
			`apiVersion: missing (want "flex2csi.io/v1alpha1")`,
			`kind: missing (want "FlexDriverConfiguration")`,
		}},
		{
			"another version hides what follows from it",
			`{"apiVersion": "flex2csi.io/v1", "kind": "FlexDriverConfiguration", "drivers": []}`,
			[]string{`apiVersion: "flex2csi.io/v1" is not known to this flexdriver (want "flex2csi.io/v1alpha1")`},
		},
		{"wrong kind", `{"apiVersion": "flex2csi.io/v1alpha1", "kind": 3}`, []string{"kind: want a string but got the number 3"}},
		{"no driver", `{"apiVersion": "flex2csi.io/v1alpha1", "kind": "FlexDriverConfiguration"}`, []string{`driver: missing (want "vendor/name")`}},
		{"no such backend", `{` + head + `, "backend": "nfs"}`, []string{`backend: "nfs" is none of "local", "csi"`}},
		{"csi with what is local's", `{` + head + `, "backend": "csi", "fsGroupPolicy": "none", "imageRoots": ["/a"], "deviceRoots": ["/b"], "directoryRoots": ["/c"]}`, []string{
			`fsGroupPolicy: means nothing to backend "csi", only to "local" (leave it out)`,
			`directoryRoots: means nothing to backend "csi", only to "local" (leave it out)`,
			`imageRoots: means nothing to backend "csi", only to "local" (leave it out)`,
			`deviceRoots: means nothing to backend "csi", only to "local" (leave it out)`,
		}},
		{"local with what is csi's", `{` + head + `, "socket": "/run/s", "stateDir": "/var/s", "controllerSocket": ".s"}`, []string{
			`socket: means nothing to backend "local", only to "csi" (leave it out)`,
			`stateDir: means nothing to backend "local", only to "csi" (leave it out)`,
			`controllerSocket: means nothing to backend "local", only to "csi" (leave it out)`,
		}},
		{"csi", `{` + head + `, "backend": "csi", "socket": "run/s", "stateDir": "", "capabilities": {"fsGroup": true}}`, []string{
			`socket: "run/s" is not absolute`,
			`stateDir: empty (want an absolute path)`,
			`capabilities.fsGroup: true makes the kubelet change what flex2csi has set already, as its configuration says for this driver (leave it out)`,
		}},
		{"a socket too long", `{` + head + `, "backend": "csi", "socket": "/` + strings.Repeat("s", 107) + `"}`, []string{
			`socket: is longer than 107 bytes, which the kernel does not allow`,
		}},
		{"nested faults", `{` + head + `, "capabilities": {"Attach": true, "fsGroup": 1}, "log": []}`, []string{
			"capabilities.Attach: no such field (there are: attach, fsGroup, requiresFSResize, selinuxRelabel, supportsMetrics)",
			"capabilities.fsGroup: want a boolean but got the number 1",
			"log: want an object but got an array",
		}},
		{"policy against capability", `{` + head + `, "capabilities": {"fsGroup": true}}`, []string{
			`capabilities.fsGroup: true contradicts fsGroupPolicy "driver", for which it is false (leave it out and set fsGroupPolicy only)`,
		}},
		{"no counts", `{` + head + `, "maxImagesPerNamespace": 0, "maxSizePerNamespace": "many"}`, []string{
			`maxImagesPerNamespace: want a whole number from 1 on but got the number 0`,
			`maxSizePerNamespace: "many" is no quantity such as 500Mi, 10Gi or 1T`,
		}},
		{"twice in another case", `{` + head + `, "log": {"file": "/a", "File": "/b", "file": "/c"}}`, []string{
			`log.File: no such field (there are: file, level)`,
			`log.file: twice in the file`,
		}},
		{"no whole number", `{` + head + `, "maxImagesPerNamespace": 1.5}`, []string{`maxImagesPerNamespace: want a whole number from 1 on but got the number 1.5`}},
		{"a key that is no word", `{` + head + `, "a\nb": 1}`, []string{
			`"a\nb": no such field (there are: apiVersion, backend, capabilities, controllerSocket, deviceRoots, directoryRoots, driver, fsGroupPolicy, imageRoots, kind, kubeletDir, log, maxImagesPerNamespace, maxSize, maxSizePerNamespace, socket, sourceTypes, stateDir, timeouts)`,
		}},
		{"many", `{` + head + `, "kubeletDir": "var/lib/kubelet", "kubeletDir": "/k",
			"directoryRoots": ["/", "", "/srv/", 7], "imageRoots": null,
			"timeouts": {"mount": "5x", "unmount": "10ms", "detach": "11m", "waitforattach": "10m", "init": "1s", "attach": 5},
			"log": {"file": "/var/log/x\n", "level": "loud"}, "fsGroupPolicy": "Driver"}`, []string{
			"kubeletDir: twice in the file",
			"directoryRoots[3]: want a string but got the number 7",
			"imageRoots: want an array but got null",
			`timeouts.mount: "5x" is no duration (want one such as "90s" or "2m")`,
			"timeouts.init: no such field (there are: attach, detach, expandfs, expandvolume, getvolumename, isattached, mount, mountdevice, unmount, unmountdevice, waitforattach)",
			"timeouts.attach: want a string but got the number 5",
			`fsGroupPolicy: "Driver" is none of "driver", "kubelet", "none"`,
			`directoryRoots[0]: "/" would open all of the node to everyone who may create a pod: name the directories`,
			"directoryRoots[1]: empty (want an absolute path)",
			`directoryRoots[2]: "/srv/" is not clean (want "/srv")`,
			"timeouts.detach: 11m0s is too long (at most 10m0s)",
			"timeouts.unmount: 10ms is too short (at least 1s)",
			"timeouts.waitforattach: 10m0s is too long (at most 9m30s)",
			`log.file: "/var/log/x\n" has a control character in it`,
			`log.level: "loud" is none of "debug", "info", "warn", "error"`,
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := driverconfig.Decode([]byte(tt.data))
			invalid, ok := errors.AsType[*driverconfig.InvalidError](err)
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

func TestInvalidErrorNamesAllFaults(t *testing.T) {
	_, err := driverconfig.Decode([]byte(`{` + head + `, "timeouts": {"mount": "5x"}, "kubeletDir": "x"}`))
	const want = `2 faults (1) timeouts.mount: "5x" is no duration (want one such as "90s" or "2m") (2) kubeletDir: "x" is not absolute`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// TestDecodeEnds: a file at the size limit with as many faults as it can
// hold must not keep init, and with it the kubelet, busy.
func TestDecodeEnds(t *testing.T) {
	fill := func(head, unit, tail string) string {
		return head + strings.Repeat(unit, (driverconfig.MaxSize-len(head)-len(tail))/len(unit)) + tail
	}
	tests := map[string]string{
		"unknown fields": fill(`{`+head, `,"a":1`, `}`),
		"bad roots":      fill(`{`+head+`,"imageRoots":[1`, `,1`, `]}`),
		"many roots":     fill(`{`+head+`,"imageRoots":["/a"`, `,"/a"`, `]}`),
		"bad paths":      fill(`{`+head+`,"imageRoots":[""`, `,""`, `]}`),
		"deep":           fill(``, `[`, ``),
		"deep enough":    strings.Repeat(`[`, 9000) + strings.Repeat(`]`, 9000),
		"one string":     fill(`{`+head+`,"kubeletDir":"`, `\"`, `"}`),
	}
	for name, data := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := driverconfig.Decode([]byte(data))
			if err == nil || err.Error() == "" {
				t.Errorf("accepted, or no text: %v", err)
			}
		})
	}
}

// FuzzDecode: whatever the file holds, Decode returns, its error is one line,
// and what it accepts survives being written and read again.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(full))
	f.Add([]byte(`{` + head + `}`))
	f.Add([]byte(`{` + head + `, "backend": "csi", "socket": "/run/s", "stateDir": "/var/s"}`))
	f.Add([]byte(`{` + head + `, "timeouts": {"mount": "5x", "unmount": "90s"}, "capabilities": {"attach": null}}`))
	f.Add([]byte(`{` + head + `, "log": {"file": "/var/log/é", "level": "warn"}, "directoryRoots": ["/a", "/b/../c"]}`))
	f.Add([]byte(`{"apiVersion": "x", "apiVersion": "y"} {`))
	f.Add([]byte("\xef\xbb\xbf{}"))
	f.Add([]byte(strings.Repeat(`{"a":[`, 200)))
	f.Fuzz(func(t *testing.T, data []byte) {
		config, err := driverconfig.Decode(data)
		if err != nil {
			if text := err.Error(); text == "" || strings.ContainsFunc(text, unicode.IsControl) {
				t.Fatalf("error is not one line of text: %q", text)
			}
			return
		}
		encoded, err := config.Encode()
		if err != nil {
			t.Fatalf("what was decoded cannot be encoded: %v", err)
		}
		again, err := driverconfig.Decode(encoded)
		if err != nil {
			t.Fatalf("what was encoded cannot be decoded: %v\n%s", err, encoded)
		}
		if diff := cmp.Diff(config, again); diff != "" {
			t.Fatalf("changed by writing and reading (-before +after):\n%s", diff)
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	for b.Loop() {
		if _, err := driverconfig.Decode([]byte(full)); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDecodeDefault is what a callout of an ordinary driver pays.
func BenchmarkDecodeDefault(b *testing.B) {
	data, err := driverconfig.Default(disk(), driverconfig.BackendLocal).Encode()
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := driverconfig.Decode(data); err != nil {
			b.Fatal(err)
		}
	}
}

// TestControllerSocket: a path that is not absolute is a dot-file next to the driver
// or in the plugin directory.
func TestControllerSocket(t *testing.T) {
	const dir = "/plugins/example.com~disk"
	for socket, want := range map[string]string{
		"":                "",
		"/run/s":          "/run/s",
		".s":              dir + "/.s",
		"../.s":           "/plugins/.s",
		"s":               "!",
		"../s":            "!",
		".":               "!",
		"..":              "!",
		"../..":           "!",
		"../../.s":        "!",
		".s/.s":           "!",
		"./.s":            "!",
		"/run/../s":       "!",
		"../.s\nb":        "!",
		"/run/" + ".\x7f": "!",
	} {
		c := driverconfig.Default(disk(), driverconfig.BackendCSI)
		c.ControllerSocket = socket
		err := c.Validate()
		if got := c.ControllerSocketOf(dir); want == "!" && err == nil || want != "!" && (err != nil || got != want) {
			t.Errorf("%q: %q, %v; want %q", socket, got, err, want)
		}
	}
}
