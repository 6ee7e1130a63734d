package bridgeconfig_test

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"go.yaml.in/yaml/v3"

	"github.com/flex2csi/flex2csi/internal/assess"
	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/mapping"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// volume is what the CSI driver is to get of a FlexVolume.
type volume struct {
	Name       string
	Handle     string
	Context    map[string]string
	MountFlags []string `yaml:"mountFlags"`
	FSType     string   `yaml:"fsType"`
	AccessMode string   `yaml:"accessMode"`
	// Secrets are the keys and values by stage, or the Secret's name.
	Secrets map[string]any
	// Attached says whether a VolumeAttachment is made.
	Attached bool
	// PodInfo says whether the pod is in the context of NodePublishVolume.
	PodInfo bool `yaml:"podInfo"`
}

// TestVolumes: testdata/NAME.txtar has, for each preset, volumes as the old
// driver's own documents write them, and what they are to become.
func TestVolumes(t *testing.T) {
	for _, p := range all(t) {
		t.Run(p.Name, func(t *testing.T) {
			archive, err := txtar.ParseFile("testdata/" + p.Name + ".txtar")
			if err != nil {
				t.Fatal(err)
			}
			parts := map[string][]byte{}
			for _, f := range archive.Files {
				parts[f.Name] = f.Data
			}
			if !strings.Contains(string(archive.Comment), "@") {
				t.Error("where the example comes from is not said")
			}
			got := volumesOf(t, config(t, p, string(parts["fill"])), parts["input"])
			var want []volume
			if err := yaml.Unmarshal(parts["want"], &want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// config is the preset with its open places filled in.
func config(t *testing.T, p bridgeconfig.Preset, fill string) *bridgeconfig.Configuration {
	t.Helper()
	for line := range strings.Lines(fill) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		var err error
		if p, err = p.Fill(name, value); err != nil {
			t.Fatal(err)
		}
	}
	c, err := bridgeconfig.Loader{}.Decode([]byte(p.Text), mapping.Check)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func volumesOf(t *testing.T, c *bridgeconfig.Configuration, input []byte) []volume {
	t.Helper()
	reader := assess.NewMapReader()
	if err := reader.Read(bytes.NewReader(input)); err != nil {
		t.Fatal(err)
	}
	found, err := reader.Input()
	if err != nil {
		t.Fatal(err)
	}
	planner, err := assess.NewPlanner(c, assess.Node{Cluster: true, Capabilities: []string{"STAGE_UNSTAGE_VOLUME", "PUBLISH_UNPUBLISH_VOLUME"}}, found.CSIDrivers)
	if err != nil {
		t.Fatal(err)
	}
	mappers, err := mapping.Compile(c)
	if err != nil {
		t.Fatal(err)
	}
	var volumes []volume
	for _, v := range found.Volumes {
		o := v.Options
		o.PodUID = "made up, as of any mount"
		mapper := mappers[0].WithSecrets(secretName)
		mapped, err := mapper.Map(t.Context(), o, &csivol.PersistentVolume{AccessModes: modes(t, input, o.VolumeName)})
		if err != nil {
			t.Fatal(err)
		}
		one := volume{
			Name: mapped.Name, Handle: mapped.Handle, Context: mapped.Context, MountFlags: mapped.MountFlags,
			FSType: mapped.FSType, AccessMode: string(mapped.AccessMode), Secrets: secretsOf(c.Drivers[0].Secrets, mapped.Secrets),
		}
		see(t, planner.Plan(v), &one)
		volumes = append(volumes, one)
	}
	return volumes
}

// secretName reads a Secret: its content is its own name.
func secretName(_ context.Context, ref csivol.SecretRef) (map[string]flex.Secret, error) {
	return map[string]flex.Secret{"name": flex.NewSecret([]byte(ref.Namespace + "/" + ref.Name))}, nil
}

// secretsOf shows what the stages get: the values, which are not secret, or the name
// of a Secret.
func secretsOf(sources bridgeconfig.Secrets, mapped csivol.Secrets) map[string]any {
	got := map[string]map[string]flex.Secret{
		"controllerPublish": mapped.ControllerPublish, "nodeStage": mapped.NodeStage, "nodePublish": mapped.NodePublish,
		"nodeExpand": mapped.NodeExpand, "controllerExpand": mapped.ControllerExpand,
	}
	var shown map[string]any
	for stage, source := range sources.All() {
		if shown == nil {
			shown = map[string]any{}
		}
		if ref := source.SecretRef; ref != nil {
			shown[stage] = ref.Namespace + "/" + ref.Name
			continue
		}
		values := map[string]any{}
		for key, value := range got[stage] {
			values[key] = string(value.Reveal())
		}
		shown[stage] = values
	}
	return shown
}

// see takes from the plan what the mapping does not tell. Each of its steps has
// to succeed.
func see(t *testing.T, p *assess.Plan, v *volume) {
	t.Helper()
	if p.Result != assess.OK {
		t.Errorf("%s: %s", p.Volume, p.Reason)
	}
	for _, step := range p.Steps {
		if step.Err != nil {
			t.Errorf("%s of %s: %v", step.Callout, p.Volume, step.Err)
		}
		for _, a := range step.Actions {
			v.Attached = v.Attached || a.Attachment != nil
		}
	}
	text, err := p.YAML()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "not-to-be-seen") {
		t.Error("the plan shows a secret")
	}
	v.PodInfo = strings.Contains(string(text), "csi.storage.k8s.io/pod.uid")
}

// modes are the access modes of a PersistentVolume among the manifests.
func modes(t *testing.T, input []byte, name string) []csivol.AccessMode {
	t.Helper()
	d := yaml.NewDecoder(strings.NewReader(string(input)))
	for {
		var object struct {
			Kind     string
			Metadata struct{ Name string }
			Spec     struct {
				AccessModes []csivol.AccessMode `yaml:"accessModes"`
			}
		}
		if err := d.Decode(&object); err != nil {
			return nil
		}
		if object.Kind == "PersistentVolume" && object.Metadata.Name == name {
			return object.Spec.AccessModes
		}
	}
}
