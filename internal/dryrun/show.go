package dryrun

import (
	"bytes"
	"encoding/json"

	"go.yaml.in/yaml/v3"

	"github.com/flex2csi/flex2csi/internal/csiclient"
	"github.com/flex2csi/flex2csi/internal/yamltext"
)

// YAML returns the plan for people, secrets masked.
func (p *Plan) YAML() ([]byte, error) { return yamltext.Encode(p.node()) }

// JSON returns the same as JSON.
func (p *Plan) JSON() ([]byte, error) {
	var value any
	if err := p.node().Decode(&value); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(value)
	return b.Bytes(), err
}

func (p *Plan) node() *yaml.Node {
	root := mappingOf("flexDriver", p.FlexDriver, "csiDriver", p.CSIDriver, "volume", p.Redact(p.Volume))
	for _, field := range [][2]string{{"claim", p.Claim}, {"pod", p.Pod}, {"template", p.volume.template}, {"handle", p.Redact(p.Handle)}, {"result", string(p.Result)}, {"reason", p.Reason}} {
		if field[1] != "" {
			put(root, field[0], scalar(field[1]))
		}
	}
	notes := &yaml.Node{Kind: yaml.SequenceNode}
	for _, n := range p.Notes {
		notes.Content = append(notes.Content, scalar(p.Redact(n)))
	}
	put(root, "notes", notes)
	steps := &yaml.Node{Kind: yaml.SequenceNode}
	for _, s := range p.Steps {
		steps.Content = append(steps.Content, p.step(s))
	}
	put(root, "steps", steps)
	return root
}

func (p *Plan) step(s Step) *yaml.Node {
	n := mappingOf("callout", string(s.Callout), "on", p.Redact(s.On))
	if len(s.Actions) > 0 {
		actions := &yaml.Node{Kind: yaml.SequenceNode}
		for _, a := range s.Actions {
			actions.Content = append(actions.Content, p.action(a))
		}
		put(n, "does", actions)
	}
	if s.Err != nil {
		put(n, "fails", scalar(p.Redact(s.Err.Error())))
	}
	return n
}

func (p *Plan) action(a Action) *yaml.Node {
	if a.API != "" {
		n := mappingOf("api", a.API)
		if a.Attachment != nil {
			put(n, "spec", attachmentNode(a.Attachment, p.Redact))
		}
		return n
	}
	if a.Request == nil {
		return mappingOf("node", p.Redact(a.Node))
	}
	n := mappingOf("rpc", a.RPC)
	put(n, "request", csiclient.Show(a.Request, p.Redact))
	return n
}

// mappingOf makes an object of keys and texts in turn.
func mappingOf(pairs ...string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for i := 0; i < len(pairs); i += 2 {
		put(n, pairs[i], scalar(pairs[i+1]))
	}
	return n
}

func put(n *yaml.Node, key string, value *yaml.Node) {
	n.Content = append(n.Content, scalar(key), value)
}

func scalar(s string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(s)
	return n
}
