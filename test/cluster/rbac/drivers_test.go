package rbac_test

import (
	"context"
	"errors"
	"testing"

	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/test/controlplane"
)

// driversPolicy says for which CSI drivers flex2csi may attach volumes.
const driversPolicy = "flex2csi-attachment-drivers"

// A driverCase is a configuration, and which CSI drivers it has in the eyes of the
// policy.
type driverCase struct {
	config           string
	allowed, refused []string
}

// driverCases are ways to write the same, and ways to write it that look like it.
func driverCases() map[string]driverCase {
	const disk = "disk.csi.example.com"
	return map[string]driverCase{
		"as the documents have it": {
			"drivers:\n- flexDriver: example.com/disk        # as in the volume\n  csiDriver: disk.csi.example.com     # as it calls itself\n- flexDriver: example.com/san\n  csiDriver: san.csi.example.com\n",
			[]string{disk, "san.csi.example.com"},
			[]string{"other.csi.example.com", "csi.example.com", "disk.csi.example", "disk.csi.example.co", "disk.csi.example.com.evil", "my-disk.csi.example.com", "diskxcsi.example.com", "example.com", "flexDriver"},
		},
		"indented, quoted": {
			"# all\ndrivers: # of ours\n\n  # one\n  - flexDriver: example.com/disk\n    csiDriver: 'disk.csi.example.com'\n  - flexDriver: example.com/san\n    # two\n    csiDriver: \"san.csi.example.com\" # why\n",
			[]string{disk, "san.csi.example.com"},
			[]string{"csi.example.com"},
		},
		"sorted, as Helm writes it": {
			"drivers:\n- attach: VolumeAttachment\n  csiDriver: disk.csi.example.com\n  flexDriver: example.com/disk\n- csiDriver: san.csi.example.com\n  flexDriver: example.com/san\n",
			[]string{disk, "san.csi.example.com"},
			nil,
		},
		"in a comment": {
			"drivers:\n- flexDriver: example.com/san\n  csiDriver: san.csi.example.com # csiDriver: disk.csi.example.com\n  # csiDriver: disk.csi.example.com\n# - csiDriver: disk.csi.example.com\n",
			[]string{"san.csi.example.com"},
			[]string{disk},
		},
		"another field": {
			"drivers:\n- flexDriver: disk.csi.example.com\n  pvNamePattern: disk.csi.example.com\n  csiDriver: san.csi.example.com\n  xcsiDriver: disk.csi.example.com\n",
			nil,
			[]string{disk},
		},
		"deeper, and in a text": {
			"drivers:\n- flexDriver: example.com/san\n  csiDriver: san.csi.example.com\n  volume:\n    csiDriver: disk.csi.example.com\n    context: |\n      csiDriver: disk.csi.example.com\n",
			[]string{"san.csi.example.com"},
			[]string{disk},
		},
		"more indented": {"drivers:\n    - flexDriver: example.com/disk\n      csiDriver: disk.csi.example.com\n", nil, []string{disk}},
		"in braces":     {"drivers:\n- {flexDriver: example.com/disk, csiDriver: disk.csi.example.com}\n", nil, []string{disk}},
		"in JSON":       {`{"drivers": [{"flexDriver": "example.com/disk", "csiDriver": "disk.csi.example.com"}]}`, nil, []string{disk}},
		"nothing":       {"", nil, []string{disk}},
	}
}

// TestDrivers: a stolen token was good for volumes of any CSI driver of the cluster, until
// an administrator had named those of the configuration once more.
func TestDrivers(t *testing.T) {
	p := installed(t)
	p.Apply(install+attachRole, install+"policy/pods.yaml")
	enforced(t, p)
	tokens := map[string]string{objects.AttachedByNode: podToken(t, p, nodeUser, "node-1"), objects.AttachedByController: podToken(t, p, controllerUser, "node-1")}
	for by, token := range tokens {
		t.Run(by, func(t *testing.T) {
			p := p.With(t)
			client := attacher{t, p.Client(token)}
			attach := func(driver string) error {
				va := volumeAttachmentOf(driver, "node-1", "drivers")
				va.Labels[objects.AttachedByLabel] = by
				return client.tries(va)
			}
			configure(p, header+configured)
			eventually(t, "the right to attach", func(context.Context) error { return attach(driver) })
			for name, test := range driverCases() {
				t.Run(name, func(t *testing.T) {
					podMaker{t, p.With(t)}.configure(header + test.config)
					for _, driver := range test.allowed {
						wantDone(t, "attach a volume of "+driver, attach(driver))
					}
					for _, driver := range test.refused {
						wantRefused(t, attach(driver), "the configuration has no CSI driver "+driver)
					}
				})
			}
			for _, driver := range []string{`x\E|.*\Q`, ".*", `\Qx`} {
				if err := attach(driver); err == nil {
					t.Errorf("attached a volume of %s", driver)
				}
			}
			testOtherCSIDrivers(t, p, attach)
			testNotConfigured(t, p, client, by, attach)
		})
	}
}

// testOtherCSIDrivers: an administrator names those that are not in the configuration.
func testOtherCSIDrivers(t *testing.T, p *controlplane.Plane, attach func(driver string) error) {
	for _, others := range []string{"['x', 'far.csi.example.com']", "['*']"} {
		wantRefused(t, attach("far.csi.example.com"), "has no CSI driver")
		setVariables(t, p, driversPolicy, map[string]string{"others": others})
		eventually(t, "the variable", func(context.Context) error { return attach("far.csi.example.com") })
		setVariables(t, p, driversPolicy, map[string]string{"others": "['']"})
		eventually(t, "the variable as it was", func(context.Context) error {
			if err := attach("far.csi.example.com"); err == nil {
				return errors.New("not in force yet")
			}
			return nil
		})
	}
}

// testNotConfigured: an API server before 1.37 may not find a ConfigMap that is there
// (kubernetes/kubernetes#133827), and then nothing may be kept from working.
func testNotConfigured(t *testing.T, p *controlplane.Plane, client attacher, by string, attach func(driver string) error) {
	podMaker{t, p}.configure(header + configured)
	wantDone(t, "attach with a configuration", attach(driver))
	va := volumeAttachment("node-1", "left")
	va.Labels[objects.AttachedByLabel] = by
	wantDone(t, "attach", client.create(va))
	p.NoConfigMap(namespace, configName)
	eventually(t, "attach without a configuration", func(context.Context) error { return attach("other.csi.example.com") })
	wantDone(t, "detach without a configuration", client.delete(va.Name))
}
