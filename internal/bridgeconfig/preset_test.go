package bridgeconfig_test

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/mapping"
	"github.com/flex2csi/flex2csi/internal/strict"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

func all(t *testing.T) []bridgeconfig.Preset {
	t.Helper()
	presets, err := bridgeconfig.Presets()
	if err != nil {
		t.Fatal(err)
	}
	if len(presets) < 12 {
		t.Errorf("only %d presets", len(presets))
	}
	return presets
}

// TestForm: what the comment of a preset has to tell, and in which words where
// programs and tables read it.
func TestForm(t *testing.T) {
	for _, p := range all(t) {
		t.Run(p.Name, func(t *testing.T) {
			for _, want := range []string{"Options:", "Sources:", "Verified:", "Not verified:"} {
				if !strings.Contains(p.Text, "\n# "+want+"\n") {
					t.Errorf("no section %q", want)
				}
			}
			if p.Title == "" || p.Needs == "" || p.Live != "yes" && !strings.HasPrefix(p.Live, "after ") {
				t.Errorf("title %q, needs %q, live %q", p.Title, p.Needs, p.Live)
			}
			_, sources, _ := strings.Cut(p.Text, "\n# Sources:\n")
			if found := regexp.MustCompile(`@[0-9a-f]{7,8}\b`).FindAllString(sources, -1); len(found) < 2 {
				t.Errorf("%d sources with their commits", len(found))
			}
			_, verified, _ := strings.Cut(p.Text, "\n# Verified:\n")
			verified, not, _ := strings.Cut(verified, "\n# Not verified:\n")
			if !regexp.MustCompile(`(?m)^#   20\d\d-\d\d(-\d\d)?, by [^:]+: `).MatchString(verified) {
				t.Errorf("verified is not when, by whom and what:\n%s", verified)
			}
			if strings.HasPrefix(not, "#   nothing") {
				t.Error("nothing is not verified: no preset was tried on its storage")
			}
			for i, line := range strings.Split(p.Text, "\n") {
				if strings.HasPrefix(line, "#") && len(line) > 95 {
					t.Errorf("line %d has %d characters", i+1, len(line))
				}
			}
		})
	}
}

// TestOptionsExplained: each option that a preset reads is in its comment.
func TestOptionsExplained(t *testing.T) {
	option := regexp.MustCompile(`options\.\??([A-Za-z]+)`)
	for _, p := range all(t) {
		comment, body, _ := strings.Cut(p.Text, "\napiVersion:")
		for _, m := range option.FindAllStringSubmatch(body, -1) {
			if strings.HasPrefix(m[1], "transform") {
				continue
			}
			if !regexp.MustCompile(`\b` + m[1] + `\b`).MatchString(comment) {
				t.Errorf("%s: the option %s is not explained", p.Name, m[1])
			}
		}
	}
}

// TestOpen: a preset is valid but for its open places, and nothing else is said
// while there are any.
func TestOpen(t *testing.T) {
	for _, p := range all(t) {
		t.Run(p.Name, func(t *testing.T) {
			_, err := bridgeconfig.Loader{}.Decode([]byte(p.Text), mapping.Check)
			if len(p.Open) == 0 {
				if err != nil {
					t.Error(err)
				}
				return
			}
			invalid, ok := errors.AsType[*strict.InvalidError](err)
			if !ok {
				t.Fatalf("with open places: %v", err)
			}
			for _, f := range invalid.Faults {
				if !slices.ContainsFunc(p.Open, func(o bridgeconfig.OpenPlace) bool {
					return strings.HasPrefix(f.Message, o.Name+" is to be filled in ("+o.What+")")
				}) {
					t.Errorf("unexpected fault %v", f)
				}
			}
		})
	}
}

// TestDocument: presets together are one configuration, comments included.
func TestDocument(t *testing.T) {
	var some []bridgeconfig.Preset
	for _, name := range []string{"azure-smb", "k8s-nfs", "fstab-cifs"} {
		p, err := bridgeconfig.GetPreset(name)
		if err != nil {
			t.Fatal(err)
		}
		some = append(some, p)
	}
	if got := bridgeconfig.PresetDocument(some[:1]); got != some[0].Text {
		t.Errorf("one preset is not its text:\n%s", got)
	}
	text := bridgeconfig.PresetDocument(some)
	c, err := bridgeconfig.Loader{}.Decode([]byte(text), mapping.Check)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	for i, p := range some {
		one, err := bridgeconfig.Loader{}.Decode([]byte(p.Text))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(one.Drivers[0], c.Drivers[i]); diff != "" {
			t.Errorf("%s (-alone +together):\n%s", p.Name, diff)
		}
		if !strings.Contains(text, "# "+p.Title+"\n") {
			t.Errorf("%s: its comment is not there", p.Name)
		}
	}
}

// TestRookTogether: Rook's two presets are one configuration also with one FlexVolume
// driver, and fsType says which CSI driver a volume has.
func TestRookTogether(t *testing.T) {
	var both []bridgeconfig.Preset
	for _, name := range []string{"rook-rbd", "rook-cephfs"} {
		p, err := bridgeconfig.GetPreset(name)
		if err != nil {
			t.Fatal(err)
		}
		both = append(both, p)
	}
	text := bridgeconfig.Fill(bridgeconfig.PresetDocument(both), "secret", "csi")
	text = strings.ReplaceAll(text, "flexDriver: ceph.rook.io/rook-ceph\n", "flexDriver: ceph.rook.io/rook\n")
	c, err := bridgeconfig.Loader{}.Decode([]byte(text), mapping.Check)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	mappers, err := mapping.Compile(c)
	if err != nil {
		t.Fatal(err)
	}
	for fsType, want := range map[string]string{"": both[0].CSIDriver, "ext4": both[0].CSIDriver, "xfs": both[0].CSIDriver, "ceph": both[1].CSIDriver} {
		i, err := mappers.Choose("ceph.rook.io/rook", flex.Options{VolumeName: "pv", FSType: fsType})
		if err != nil || c.Drivers[i].CSIDriver != want {
			t.Errorf("fsType %q: %d, %v", fsType, i, err)
		}
	}
}

func TestGetUnknown(t *testing.T) {
	for name, want := range map[string]string{
		"zfs":        `there is no preset "zfs", only alicloud-disk, `,
		"ceph":       `there is no preset "ceph": did you mean rook-cephfs?`,
		"fstab/cifs": `there is no preset "fstab/cifs": did you mean fstab-cifs?`,
		"fstab-cfis": `there is no preset "fstab-cfis": did you mean fstab-cifs?`,
		"cifs":       `there is no preset "cifs": did you mean azure-cifs or fstab-cifs or juliohm-cifs?`,
		"":           `there is no preset "", only alicloud-disk, `,
	} {
		_, err := bridgeconfig.GetPreset(name)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v", name, err)
		}
	}
}
