package mapping_test

import (
	"strings"
	"testing"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/mapping"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// TestChoose: a volume belongs to one CSI driver, or the call fails.
func TestChoose(t *testing.T) {
	c := &bridgeconfig.Configuration{}
	for _, d := range []struct{ flexDriver, csiDriver, when string }{
		{"example.com/other", "other.csi.example.com", ""},
		{flexDriver, "share.csi.example.com", `fsType == "ceph" || options.?kind.orValue("") == "share"`},
		{flexDriver, "disk.csi.example.com", `fsType == "ext4" && !pvName.startsWith("old-")`},
		{flexDriver, "zone.csi.example.com", `options.?zone.orValue("") == "z" && options["size"] != ""`},
	} {
		one := bridgeconfig.DefaultDriver()
		one.FlexDriver, one.CSIDriver, one.When = d.flexDriver, d.csiDriver, d.when
		c.Drivers = append(c.Drivers, one)
	}
	mappers, err := mapping.Compile(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, flexDriver string
		o                flex.Options
		want             int
		err              string
	}{
		{"without when", "example.com/other", flex.Options{VolumeName: "pv"}, 0, ""},
		{"by fsType", flexDriver, flex.Options{VolumeName: "pv", FSType: "ceph"}, 1, ""},
		{"by an option", flexDriver, flex.Options{VolumeName: "pv", FSType: "xfs", User: map[string]string{"kind": "share"}}, 1, ""},
		{"by fsType and name", flexDriver, flex.Options{VolumeName: "pv", FSType: "ext4"}, 2, ""},
		{"none", flexDriver, flex.Options{VolumeName: "old-1", FSType: "ext4"}, -1, `choose a CSI driver for volume "old-1" of driver example.com/disk: no when of the configuration is true for it (when (fsType == "ceph"`},
		{"two", flexDriver, flex.Options{VolumeName: "pv", FSType: "ext4", User: map[string]string{"kind": "share"}}, -1, `it is one of the CSI driver share.csi.example.com and of disk.csi.example.com: `},
		{"an option is missing", flexDriver, flex.Options{VolumeName: "pv", User: map[string]string{"zone": "z"}}, -1, `the volume has no option "size", which when (`},
		{"another name", "example.com/no", flex.Options{VolumeName: "pv"}, -1, "the configuration has no driver example.com/no"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := mappers.Choose(tt.flexDriver, tt.o)
			if got != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("got %d, %v; want %d, %q", got, err, tt.want, tt.err)
			}
		})
	}
}

// TestWhenFaults: what cannot choose is refused when the file is loaded.
func TestWhenFaults(t *testing.T) {
	for when, want := range map[string]string{
		`fsType`:                 `drivers[0].when: gives string, want bool; compare it, such as fsType == "ext4"`,
		`ext4`:                   `drivers[0].when: undeclared reference to 'ext4' (column 1); compare it, such as fsType == "ext4"`,
		`fsType = "ext4"`:        `write == to compare`,
		`pod.namespace == "a"`:   `undeclared reference to 'pod'`,
		`readOnly`:               `undeclared reference to 'readOnly'`,
		`accessModes.size() > 0`: `undeclared reference to 'accessModes'`,
		`options.?kind`:          `compare it, such as fsType == "ext4"`,
	} {
		_, err := mapping.Compile(configuration(func(d *bridgeconfig.Driver) { d.When = when }))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", when, err, want)
		}
	}
}

// TestChooseSaysNoSecret: options may have secrets, and the message goes into an event.
func TestChooseSaysNoSecret(t *testing.T) {
	mappers, err := mapping.Compile(configuration(func(d *bridgeconfig.Driver) { d.When = `int(options.password) > 3` }))
	if err != nil {
		t.Fatal(err)
	}
	_, err = mappers.Choose(flexDriver, flex.Options{VolumeName: "pv", User: map[string]string{"password": "hunter2"}})
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("got %v", err)
	}
}
