package assess

import (
	"go.yaml.in/yaml/v3"

	"github.com/flex2csi/flex2csi/internal/csiclient"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/guard"
	"github.com/flex2csi/flex2csi/internal/report"
	"github.com/flex2csi/flex2csi/internal/yamltext"
)

// A document is a plan as it is printed, secrets masked.
type document struct {
	FlexDriver string         `yaml:"flexDriver"`
	CSIDriver  string         `yaml:"csiDriver"`
	Volume     string         `yaml:"volume"`
	Claim      string         `yaml:"claim,omitempty"`
	Pod        string         `yaml:"pod,omitempty"`
	Template   string         `yaml:"template,omitempty"`
	Handle     string         `yaml:"handle,omitempty"`
	Result     Result         `yaml:"result"`
	Reason     string         `yaml:"reason,omitempty"`
	Notes      []string       `yaml:"notes"`
	Steps      []stepDocument `yaml:"steps"`
}

type stepDocument struct {
	Callout string           `yaml:"callout"`
	On      string           `yaml:"on"`
	Does    []actionDocument `yaml:"does,omitempty"`
	Fails   string           `yaml:"fails,omitempty"`
}

type actionDocument struct {
	API     string         `yaml:"api,omitempty"`
	Spec    map[string]any `yaml:"spec,omitempty"`
	Node    string         `yaml:"node,omitempty"`
	RPC     string         `yaml:"rpc,omitempty"`
	Request *yaml.Node     `yaml:"request,omitempty"`
}

// A csiSource is that of a VolumeAttachment, by the names of the API.
type csiSource struct {
	Driver       string            `yaml:"driver"`
	VolumeHandle string            `yaml:"volumeHandle"`
	FSType       string            `yaml:"fsType,omitempty"`
	Secret       map[string]string `yaml:"controllerPublishSecretRef,omitempty"`
	Attributes   map[string]string `yaml:"volumeAttributes,omitempty"`
}

// YAML returns the plan for people.
func (p *Plan) YAML() ([]byte, error) {
	n, err := p.node()
	if err != nil {
		return nil, err
	}
	return yamltext.Encode(n)
}

// JSON returns the same as JSON.
func (p *Plan) JSON() ([]byte, error) {
	n, err := p.node()
	if err != nil {
		return nil, err
	}
	var value any
	if err := n.Decode(&value); err != nil {
		return nil, err
	}
	return report.JSON(value)
}

func (p *Plan) node() (*yaml.Node, error) {
	n := &yaml.Node{}
	err := n.Encode(p.document())
	plain(n)
	return n, err
}

// plain removes quotes that are not needed, such as those of the key on.
func plain(n *yaml.Node) {
	if n.Style != yaml.LiteralStyle {
		n.Style = 0
	}
	for _, child := range n.Content {
		plain(child)
	}
}

func (p *Plan) document() *document {
	d := &document{
		FlexDriver: p.FlexDriver, CSIDriver: p.CSIDriver, Volume: p.Redact(p.Volume), Claim: p.Claim, Pod: p.Pod, Template: p.volume.template,
		Handle: p.Redact(p.Handle), Result: p.Result, Reason: p.Reason, Notes: []string{}, Steps: []stepDocument{},
	}
	for _, n := range p.Notes {
		d.Notes = append(d.Notes, p.Redact(n))
	}
	for _, s := range p.Steps {
		step := stepDocument{Callout: string(s.Callout), On: p.Redact(s.On)}
		for _, a := range s.Actions {
			step.Does = append(step.Does, p.action(a))
		}
		if s.Err != nil {
			step.Fails = p.Redact(s.Err.Error())
		}
		d.Steps = append(d.Steps, step)
	}
	return d
}

func (p *Plan) action(a Action) actionDocument {
	d := actionDocument{API: a.API, Node: p.Redact(a.Node), RPC: a.RPC}
	if a.Attachment != nil {
		d.Spec = p.attachment(a.Attachment)
	}
	if a.Request != nil {
		d.Request = csiclient.Show(a.Request, p.Redact)
	}
	return d
}

// attachment is the spec of a VolumeAttachment.
func (p *Plan) attachment(a *csivol.Attachment) map[string]any {
	csi := csiSource{Driver: a.Driver, VolumeHandle: p.Redact(a.Handle), FSType: p.Redact(a.FSType), Attributes: map[string]string{}}
	if a.Secret != nil {
		csi.Secret = map[string]string{"name": a.Secret.Name, "namespace": a.Secret.Namespace}
	}
	for key, value := range a.Context {
		if guard.SensitiveKey(key) {
			value = guard.Mask
		}
		csi.Attributes[p.Redact(key)] = p.Redact(value)
	}
	inline := map[string]any{"accessModes": a.AccessModes, "csi": csi}
	if len(a.MountFlags) > 0 {
		var flags []string
		for _, flag := range guard.MaskOptions(a.MountFlags) {
			flags = append(flags, p.Redact(flag))
		}
		inline["mountOptions"] = flags
	}
	return map[string]any{"attacher": a.Driver, "nodeName": a.Node, "source": map[string]any{"inlineVolumeSpec": inline}}
}
