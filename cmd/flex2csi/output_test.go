package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/flex2csi/flex2csi/internal/bridgestatus"
)

// TestFormats: JSON and YAML have the same, YAML in the same order.
func TestFormats(t *testing.T) {
	s := bridgestatus.New(bridgestatus.SourceStateDir)
	s.Volumes = append(s.Volumes, bridgestatus.VolumeStatus{PersistentVolume: "pv1", VolumeHandle: "<a>&b: yes"})
	printed := func(format string) string {
		o := outputFormat{formats: []string{asJSON, asYAML, asName}, chosen: format}
		var out bytes.Buffer
		if err := o.print(&out, s, nil); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	var fromJSON, fromYAML any
	if err := json.Unmarshal([]byte(printed(asJSON)), &fromJSON); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal([]byte(printed(asYAML)), &fromYAML); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(fromJSON, fromYAML); diff != "" {
		t.Errorf("JSON (-), YAML (+):\n%s", diff)
	}
	if !strings.HasPrefix(printed(asYAML), "apiVersion: flex2csi.io/v1alpha1\nkind: BridgeStatus\n") {
		t.Errorf("YAML begins with %.60s", printed(asYAML))
	}
	if !strings.Contains(printed(asJSON), `"<a>&b: yes"`) {
		t.Errorf("%s", printed(asJSON))
	}
	if got := printed(asName); got != "persistentvolume/pv1\n" {
		t.Errorf("-o name prints %q", got)
	}
}

// TestNames: what has the format name can print it, and --output has the same
// formats in the same order everywhere.
func TestNames(t *testing.T) {
	found := 0
	each(newRoot(), func(c *cobra.Command) {
		f := c.Flags().Lookup("output")
		if f == nil {
			return
		}
		found++
		rest := []string{table, wide, asJSON, asYAML, asName, asCSV, asHTML}
		formats := f.Value.(*choice).values
		if formats[0] == asYAML {
			rest = []string{asYAML, asJSON} // what is YAML by nature
		}
		for _, format := range formats {
			_, after, ok := strings.Cut(strings.Join(rest, " "), format)
			if !ok {
				t.Errorf("%s has the formats %q", c.CommandPath(), formats)
			}
			rest = strings.Fields(after)
		}
	})
	if found < 10 {
		t.Errorf("only %d commands have --output", found)
	}
}
