package schema_test

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"sigs.k8s.io/yaml"

	"github.com/flex2csi/flex2csi/hack/manual"
	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/strict"
	"github.com/flex2csi/flex2csi/test/install/schema"
)

var update = flag.Bool("update", false, "update the files")

// TestSchemas: the schemas have the fields that the Go types have. With -update (make docs)
// they are made so.
func TestSchemas(t *testing.T) {
	t.Chdir("../../..")
	files, err := schema.Files()
	if err != nil {
		t.Fatal(err)
	}
	manual.Check(t, ".", files, *update)
}

// compiled is the schema that is published.
func compiled(t *testing.T) *jsonschema.Schema {
	t.Helper()
	s, err := jsonschema.NewCompiler().Compile("../../../" + schema.Configuration)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func validate(t *testing.T, s *jsonschema.Schema, config string) error {
	t.Helper()
	text, err := yaml.YAMLToJSON([]byte(config))
	if err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(value)
}

// TestValid: an editor finds no fault with what flex2csi takes.
func TestValid(t *testing.T) {
	s := compiled(t)
	configs := map[string]string{}
	presets, err := bridgeconfig.Presets()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range presets {
		configs["preset "+p.Name] = p.Text
	}
	for _, file := range []string{"internal/bridgeconfig/testdata/full.yaml", "internal/bridgeconfig/testdata/full.golden.yaml", "install/base/config.yaml"} {
		text, err := os.ReadFile(filepath.Join("../../..", file))
		if err != nil {
			t.Fatal(err)
		}
		configs[file] = string(text)
	}
	for name, config := range configs {
		if err := validate(t, s, config); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

const driver = "apiVersion: flex2csi.io/v1alpha1\nkind: BridgeConfiguration\ndrivers:\n- flexDriver: a/b\n  csiDriver: c\n"

// TestFaults: an editor and flex2csi find the same faults.
func TestFaults(t *testing.T) {
	s := compiled(t)
	for name, config := range map[string]string{
		"no version":            strings.Replace(driver, "apiVersion: flex2csi.io/v1alpha1\n", "", 1),
		"another version":       strings.Replace(driver, "v1alpha1", "v1", 1),
		"another kind":          strings.Replace(driver, "BridgeConfiguration", "Configuration", 1),
		"no drivers":            "apiVersion: flex2csi.io/v1alpha1\nkind: BridgeConfiguration\ndrivers: []\n",
		"no FlexVolume driver":  strings.Replace(driver, "- flexDriver: a/b\n ", "-", 1),
		"no CSI driver":         strings.Replace(driver, "  csiDriver: c\n", "", 1),
		"a driver's name":       strings.Replace(driver, "a/b", "b", 1),
		"a misspelt field":      driver + "  inlin: true\n",
		"one inside":            driver + "  volume: {handel: a}\n",
		"a stage of secrets":    driver + "  secrets: {nodeStge: {file: /a}}\n",
		"a source of secrets":   driver + "  secrets: {nodeStage: {fil: /a}}\n",
		"a Secret":              driver + "  secrets: {nodeStage: {secretRef: {name: a}}}\n",
		"an attachment":         driver + "  attach: Maybe\n",
		"an fsGroup":            driver + "  fsGroup: Maybe\n",
		"text for a bool":       driver + "  inline: 'true'\n",
		"a list for an object":  driver + "  volume: []\n",
		"a number for a text":   driver + "  when: 1\n",
		"something at the top":  driver + "driver: []\n",
		"what has been removed": driver + "  timeouts: {}\n",
	} {
		if _, err := (bridgeconfig.Loader{}).Decode([]byte(config)); err == nil {
			t.Errorf("%s: flex2csi takes it", name)
		}
		if validate(t, s, config) == nil {
			t.Errorf("%s: the schema takes it", name)
		}
	}
	if err := validate(t, s, driver); err != nil {
		t.Errorf("without a fault: %v", err)
	}
}

// TestEnumerated: the values that a field may have are those that flex2csi names.
func TestEnumerated(t *testing.T) {
	text, err := os.ReadFile("../../../" + schema.Configuration)
	if err != nil {
		t.Fatal(err)
	}
	var published struct {
		Definitions map[string]struct {
			Properties map[string]struct{ Enum []string }
		}
	}
	if err := json.Unmarshal(text, &published); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"attach", "fsGroup"} {
		_, err := bridgeconfig.Loader{}.Decode([]byte(driver + "  " + name + ": Maybe\n"))
		invalid, ok := errors.AsType[*strict.InvalidError](err)
		if !ok {
			t.Fatal(err)
		}
		var named []string
		for _, found := range regexp.MustCompile(`"([A-Z]\w+)"`).FindAllStringSubmatch(invalid.Faults[0].Message, -1) {
			if found[1] != "Maybe" {
				named = append(named, found[1])
			}
		}
		enum := published.Definitions["Driver"].Properties[name].Enum
		slices.Sort(named)
		slices.Sort(enum)
		if len(enum) == 0 || !slices.Equal(named, enum) {
			t.Errorf("%s is one of %q, in the schema %q", name, named, enum)
		}
	}
}
