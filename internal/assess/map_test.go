package assess_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/flex2csi/flex2csi/internal/assess"
	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/mapping"
	"github.com/flex2csi/flex2csi/internal/report"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// TestPlans: testdata/map/*.txtar hold a configuration, what to map, and what
// comes out of it.
func TestPlans(t *testing.T) {
	files, err := filepath.Glob("testdata/map/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no test data: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			part := map[string]int{}
			for i, f := range archive.Files {
				part[f.Name] = i
			}
			content := func(name string) string {
				if i, ok := part[name]; ok {
					return string(archive.Files[i].Data)
				}
				return ""
			}
			got, err := planOf(t, content("config.yaml"), content("input"), string(archive.Comment))
			if err != nil {
				if diff := cmp.Diff(strings.TrimSpace(content("error")), err.Error()); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				return
			}
			for _, secret := range []string{"hunter2", "a2ltYmVybHk", "kimberly"} {
				if strings.Contains(got, secret) {
					t.Errorf("the secret %q is shown", secret)
				}
			}
			if *update {
				archive.Files[part["want.yaml"]].Data = []byte(got)
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(content("want.yaml"), got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// readVolumes reads one text: manifests, or a callout without blanks in its arguments.
func readVolumes(text string) (*assess.MapInput, error) {
	if args := strings.Fields(text); len(args) > 1 && flex.Command(args[0]).Known() {
		v, err := assess.FromCall("", args)
		return &assess.MapInput{Volumes: []*assess.FlexVolume{v}}, err
	}
	return readFrom(strings.NewReader(text))
}

func readFrom(text io.Reader) (*assess.MapInput, error) {
	r := assess.NewMapReader()
	if err := r.Read(text); err != nil {
		return nil, err
	}
	return r.Input()
}

// planOf does what the command does.
func planOf(t *testing.T, config, input, comment string) (string, error) {
	t.Helper()
	c, err := bridgeconfig.Loader{}.Decode([]byte(config), mapping.Check)
	if err != nil {
		t.Fatal(err)
	}
	var node assess.Node
	_, flags, _ := strings.Cut(comment, "flags:")
	for f := range strings.FieldsSeq(flags) {
		switch name, value, _ := strings.Cut(f, "="); name {
		case "in-cluster":
			node.Cluster = true
		case "attach":
			node.ControlPlaneAttaches = true
		case "id":
			node.ID = value
		case "capabilities":
			node.Capabilities = strings.Split(value, ",")
		}
	}
	in, err := readVolumes(input)
	if err != nil {
		return "", err
	}
	planner, err := assess.NewPlanner(c, node, in.CSIDrivers)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for i, v := range in.Volumes {
		p := planner.Plan(v)
		if len(p.Steps) == 0 {
			return "", fmt.Errorf("%s: %s", v.From, p.Reason)
		}
		if i > 0 {
			out.WriteString("---\n")
		}
		text, err := p.YAML()
		if err != nil {
			t.Fatal(err)
		}
		out.Write(text)
	}
	return out.String(), nil
}

func TestMapErrors(t *testing.T) {
	const config = "apiVersion: flex2csi.io/v1alpha1\nkind: BridgeConfiguration\ndrivers:\n- {flexDriver: example.com/disk, csiDriver: disk.csi.example.com}\n- {flexDriver: example.com/other, csiDriver: other.csi.example.com}\n"
	tests := []struct{ name, input, want string }{
		{"nothing", "", "there is no FlexVolume in it"},
		{"text", "hello", "want a manifest, but got a string"},
		{"other things", "kind: Deployment", "there is no FlexVolume in it"},
		{"no YAML", "a: b: c", "not YAML"},
		{"unknown driver", "kind: PersistentVolume\nmetadata: {name: pv1}\nspec: {flexVolume: {driver: a/b}}", "PersistentVolume pv1: the configuration has no driver \"a/b\", only example.com/disk, example.com/other: add it; "},
		{"which driver", `attach {"volumeID":"x"} n`, "the call of attach: nothing tells its FlexVolume driver: give --driver"},
		{"no options", "unmount /d", "unmount has no options"},
		{"bad call", "mount relative {}", "mount: the directory"},
		{"number", "kind: PersistentVolume\nmetadata: {name: pv1}\nspec: {flexVolume: {driver: example.com/disk, options: {volumeID: 7}}}", `PersistentVolume pv1: option "volumeID" is a number: want a string; put it in quotes`},
		{"capacity", "kind: PersistentVolume\nmetadata: {name: pv1}\nspec: {capacity: {storage: much}, flexVolume: {driver: example.com/disk}}", "PersistentVolume pv1: spec.capacity.storage: "},
		{"no name", "kind: PersistentVolume\nmetadata: {}\nspec: {flexVolume: {driver: example.com/disk, options: {volumeID: x}}}", "a PersistentVolume has no name: set metadata.name"},
		{"no driver", "kind: PersistentVolume\nmetadata: {name: pv1}\nspec: {flexVolume: {options: {volumeID: x}}}", "flexVolume.driver is missing: set it"},
		{"no handle", "kind: PersistentVolume\nmetadata: {name: pv1}\nspec: {flexVolume: {driver: example.com/disk}}", "the handle is empty"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := planOf(t, config, tt.input, "")
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v does not say %q", err, tt.want)
			}
		})
	}
	if _, err := planOf(t, config, "kind: PersistentVolume\nmetadata: {name: pv1}\nspec: {flexVolume: {driver: example.com/disk, options: {volumeID: x}}}", "flags: capabilities=STAGE"); err == nil || !strings.Contains(err.Error(), `capability "STAGE" is none of STAGE_UNSTAGE_VOLUME`) {
		t.Errorf("got %v", err)
	}
}

// FuzzPlans: whatever is given, a plan or an error comes out, and no secret.
func FuzzPlans(f *testing.F) {
	files, _ := filepath.Glob("testdata/map/*.txtar")
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for _, part := range archive.Files {
			if part.Name == "input" {
				f.Add(part.Data)
			}
		}
	}
	c, err := bridgeconfig.Loader{}.Decode([]byte("apiVersion: flex2csi.io/v1alpha1\nkind: BridgeConfiguration\ndrivers:\n- {flexDriver: example.com/disk, csiDriver: a}\n- {flexDriver: example.com/nfs, csiDriver: b, podInfo: true, secrets: {nodeStage: {fromFlexSecret: {a: key}}}}\n"), mapping.Check)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		in, err := readVolumes(string(input))
		if err != nil {
			return
		}
		planner, err := assess.NewPlanner(c, assess.Node{ControlPlaneAttaches: true}, in.CSIDrivers)
		if err != nil {
			t.Fatal(err)
		}
		found := planner.Report(in.Volumes)
		if err := found.Show(report.Wide).Write(io.Discard, report.Wide); err != nil {
			t.Error(err)
		}
		for _, p := range found.Plans {
			p = planner.Detail(p)
			if p.Result != assess.OK && p.Reason == "" {
				t.Errorf("%s: no reason", p.Result)
			}
			if text, err := p.YAML(); err != nil || len(text) == 0 {
				t.Errorf("%v: %s", err, text)
			}
		}
	})
}
