package manifests_test

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/flex2csi/flex2csi/hack/manifests"
	"github.com/flex2csi/flex2csi/hack/manual"
)

var update = flag.Bool("update", false, "update the files")

// TestManifests: what install/ says again is what it says elsewhere. With -update
// (make docs) it is made so.
func TestManifests(t *testing.T) {
	const root = "../.."
	files, err := manifests.Files(root)
	if err != nil {
		t.Fatal(err)
	}
	manual.Check(t, root, files, *update, manifests.Overlays+"/*/*", manifests.Chart+"/files/*")
}

// TestValuesAreExplained: values.yaml is the chart's reference, so each value has a
// comment above it.
func TestValuesAreExplained(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("../..", manifests.Chart, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	if explained := explained(t, "", document.Content[0]); explained < 40 {
		t.Errorf("only %d values were found", explained)
	}
}

// explained counts the values with a comment. Those of a map have their own if the first
// one has.
func explained(t *testing.T, prefix string, values *yaml.Node) (n int) {
	t.Helper()
	for i := 0; i+1 < len(values.Content); i += 2 {
		key, value := values.Content[i], values.Content[i+1]
		deeper := value.Kind == yaml.MappingNode && len(value.Content) > 0 && value.Content[0].HeadComment != ""
		switch {
		case deeper:
			n += explained(t, prefix+key.Value+".", value)
		case key.HeadComment == "":
			t.Errorf("%s (line %d) has no comment above it", prefix+key.Value, key.Line)
		default:
			n++
		}
	}
	return n
}
