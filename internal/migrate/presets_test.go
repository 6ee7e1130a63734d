package migrate_test

import (
	"encoding/json"
	"flag"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"go.yaml.in/yaml/v3"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/mapping"
	"github.com/flex2csi/flex2csi/internal/migrate"
)

var update = flag.Bool("update", false, "write the golden files")

// example is the test data of a preset: volumes as the old driver's documents
// write them, and what the bridge makes of them.
type example struct {
	config  *bridgeconfig.Configuration
	volumes []map[string]any
	want    []wanted
}

// wanted is what the bridge tells the CSI driver (internal/bridgeconfig, TestVolumes).
type wanted struct {
	Name       string
	Handle     string
	Context    map[string]string
	MountFlags []string `yaml:"mountFlags"`
	FSType     string   `yaml:"fsType"`
	AccessMode string   `yaml:"accessMode"`
	Secrets    map[string]any
}

func examples(t *testing.T) map[string]example {
	t.Helper()
	presets, err := bridgeconfig.Presets()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]example{}
	for _, p := range presets {
		archive, err := txtar.ParseFile("../bridgeconfig/testdata/" + p.Name + ".txtar")
		if err != nil {
			t.Fatal(err)
		}
		var e example
		for _, f := range archive.Files {
			switch f.Name {
			case "fill":
				for line := range strings.Lines(string(f.Data)) {
					name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
					if p, err = p.Fill(name, value); err != nil {
						t.Fatal(err)
					}
				}
			case "input":
				e.volumes = documents(t, f.Data, "PersistentVolume")
			case "want":
				if err := yaml.Unmarshal(f.Data, &e.want); err != nil {
					t.Fatal(err)
				}
			}
		}
		if e.config, err = (bridgeconfig.Loader{}).Decode([]byte(p.Text), mapping.Check); err != nil {
			t.Fatal(err)
		}
		all[p.Name] = e
	}
	return all
}

// documents are the objects of a kind in YAML.
func documents(t *testing.T, data []byte, kind string) (all []map[string]any) {
	t.Helper()
	for d := yaml.NewDecoder(strings.NewReader(string(data))); ; {
		var object map[string]any
		if err := d.Decode(&object); err != nil {
			return all
		}
		if object["kind"] == kind {
			all = append(all, object)
		}
	}
}

// TestPresets: the replacement of each example says what the bridge tells the
// CSI driver, and is the one in testdata.
func TestPresets(t *testing.T) {
	var volumes int
	for name, e := range examples(t) {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			for i, object := range e.volumes {
				want := e.want[slices.IndexFunc(e.want, func(w wanted) bool { return w.Name == nameOf(object) })]
				replacement := render(t, e.config, object)
				see(t, want, e.config.Drivers[0].CSIDriver, replacement)
				text, err := migrate.YAMLOf(replacement)
				if err != nil {
					t.Fatal(err)
				}
				if i > 0 {
					out.WriteString("---\n")
				}
				out.Write(text)
			}
			golden(t, "testdata/"+name+".yaml", out.String())
		})
		volumes += len(e.volumes)
	}
	if volumes < 16 {
		t.Errorf("only %d examples", volumes)
	}
}

func nameOf(object map[string]any) string {
	metadata, _ := object["metadata"].(map[string]any)
	name, _ := metadata["name"].(string)
	return name
}

// render makes the replacement of a volume that a claim has.
func render(t *testing.T, c *bridgeconfig.Configuration, object map[string]any) []byte {
	t.Helper()
	spec, _ := object["spec"].(map[string]any)
	spec["claimRef"] = map[string]any{"namespace": "default", "name": "data", "uid": "3f0c6a5e-0000-4000-8000-000000000001", "resourceVersion": "17"}
	raw, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	replacement, _, err := migrate.Render(t.Context(), c, raw)
	if err != nil {
		t.Fatal(err)
	}
	return replacement
}

// see compares a replacement with what the bridge tells the CSI driver.
func see(t *testing.T, want wanted, driver string, replacement []byte) {
	t.Helper()
	var got struct {
		Metadata struct{ Name string }
		Spec     struct {
			AccessModes  []string
			MountOptions []string
			ClaimRef     map[string]string
			FlexVolume   any
			CSI          map[string]any
		}
	}
	if err := json.Unmarshal(replacement, &got); err != nil {
		t.Fatal(err)
	}
	csi := map[string]any{"driver": driver, "volumeHandle": want.Handle}
	if want.FSType != "" {
		csi["fsType"] = want.FSType
	}
	if len(want.Context) > 0 {
		attributes := map[string]any{}
		for k, v := range want.Context {
			attributes[k] = v
		}
		csi["volumeAttributes"] = attributes
	}
	rest := maps.Clone(got.Spec.CSI)
	for stage := range want.Secrets {
		ref, _ := rest[stage+"SecretRef"].(map[string]any)
		if named, ok := want.Secrets[stage].(string); ok && named != "" && ref["namespace"].(string)+"/"+ref["name"].(string) != named || ref["name"] == "" {
			t.Errorf("%sSecretRef is %v, want %v", stage, ref, want.Secrets[stage])
		}
		delete(rest, stage+"SecretRef")
	}
	if diff := cmp.Diff(csi, rest); diff != "" {
		t.Errorf("spec.csi (-want +got):\n%s", diff)
	}
	if want.AccessMode != "" && got.Spec.AccessModes[0] != want.AccessMode || !slices.Equal(got.Spec.MountOptions, want.MountFlags) || got.Metadata.Name != want.Name {
		t.Errorf("%+v", got)
	}
	if got.Spec.FlexVolume != nil || got.Spec.ClaimRef["uid"] == "" || got.Spec.ClaimRef["resourceVersion"] != "" {
		t.Errorf("%+v", got.Spec)
	}
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

// TestIBM: the mapping in docs/presets.md makes what IBM's CSI driver reads
// (IBM/ibm-object-csi-driver pkg/driver/nodeserver.go and pkg/mounter/mounter.go @002533b,
// pkg/utils/driver_utils.go @0228cb7) of the volume that IBM's example has, as a
// PersistentVolume (IBM/ibmcloud-object-storage-plugin deploy/sample-usage/pod-vol.yaml @08d275e).
func TestIBM(t *testing.T) {
	page, err := os.ReadFile("../../docs/presets.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n### IBM Cloud Object Storage\n")
	_, text, _ := strings.Cut(section, "```yaml\n")
	text, _, _ = strings.Cut(text, "```")
	config, err := bridgeconfig.Loader{}.Decode([]byte(text), mapping.Check)
	if err != nil {
		t.Fatal(err)
	}
	volume := func(options map[string]any) map[string]any {
		return map[string]any{
			"apiVersion": "v1", "kind": "PersistentVolume", "metadata": map[string]any{"name": "pv1"},
			"spec": map[string]any{
				"accessModes": []any{"ReadWriteMany"}, "capacity": map[string]any{"storage": "1Gi"},
				"flexVolume": map[string]any{"driver": "ibm/ibmc-s3fs", "secretRef": map[string]any{"name": "test-secret"}, "options": options},
			},
		}
	}
	attributes := map[string]string{"mounter": "s3fs", "userProvidedBucket": "true", "bucketName": "mybucket", "cosEndpoint": "https://s3.example.com", "locationConstraint": "us-standard"}
	secrets := map[string]any{"nodePublish": "default/test-secret-csi"}
	for name, options := range map[string]map[string]any{
		"example": {"bucket": "mybucket", "endpoint": "https://s3.example.com", "region": "us-standard", "chunk-size-mb": "200", "stat-cache-expire-seconds": "", "s3fs-fuse-retry-count": "5"},
		"of the provisioner": {
			"bucket": "mybucket", "object-store-endpoint": "https://s3.example.com", "object-store-storage-class": "us-standard", "endpoint": "https://old", "chunk-size-mb": "200", "s3fs-fuse-retry-count": "5",
		},
	} {
		t.Run(name, func(t *testing.T) {
			want := wanted{Name: "pv1", Handle: "pv1", Context: attributes, MountFlags: []string{"multipart_size=200", "retries=5"}, AccessMode: "ReadWriteMany", Secrets: secrets}
			see(t, want, "cos.s3.csi.ibm.io", render(t, config, volume(options)))
		})
	}
}
