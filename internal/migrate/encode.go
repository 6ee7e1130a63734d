package migrate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"go.yaml.in/yaml/v3"
)

// JSON is the plan for programs.
func (p *Plan) JSON() ([]byte, error) {
	data, err := encode(p)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := json.Indent(&b, data, "", "  "); err != nil {
		return nil, err
	}
	b.WriteByte('\n')
	return b.Bytes(), nil
}

// YAML is the same as JSON.
func (p *Plan) YAML() ([]byte, error) {
	data, err := encode(p)
	if err != nil {
		return nil, err
	}
	return yamlOf(data)
}

// yamlOf writes JSON, which is YAML already, as people write that, in the same
// order.
func yamlOf(data []byte) ([]byte, error) {
	var n yaml.Node
	if err := yaml.Unmarshal(data, &n); err != nil {
		return nil, err
	}
	plainStyle(&n)
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	e.CompactSeqIndent()
	err := errors.Join(e.Encode(&n), e.Close())
	return b.Bytes(), err
}

// ambiguous are texts that are something else to readers of YAML 1.1, such as
// kubectl: booleans and numbers to the base 60.
var ambiguous = regexp.MustCompile(`^(?i:y|n|yes|no|on|off)$|^[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?$`)

func plainStyle(n *yaml.Node) {
	n.Style = 0
	if n.Kind == yaml.ScalarNode && n.Tag == "!!str" && ambiguous.MatchString(n.Value) {
		n.Style = yaml.DoubleQuotedStyle
	}
	for _, child := range n.Content {
		plainStyle(child)
	}
}

// Write writes the plan into a directory, which is new or empty: plan.yaml, and
// for each volume the old object as it is (NAME.old.json as the API server has
// sent it, NAME.old.yaml for people) and the replacement (NAME.csi.yaml).
func (p *Plan) Write(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if len(entries) > 0 {
		return fmt.Errorf("directory %s is not empty: a plan is written into one of its own", dir)
	}
	for _, v := range p.Volumes {
		if err := v.write(dir); err != nil {
			return err
		}
	}
	plan, err := p.YAML()
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "plan.yaml"), plan, 0o600)
}

func (v *Volume) write(dir string) error {
	file := func(suffix string, data []byte) error {
		return os.WriteFile(filepath.Join(dir, v.Name+suffix), data, 0o600)
	}
	old, err := yamlOf(v.Original.Object)
	if err != nil {
		return err
	}
	if err := errors.Join(file(".old.json", v.Original.Object), file(".old.yaml", old)); err != nil || v.Replacement == nil {
		return err
	}
	data, err := v.Replacement.MarshalJSON()
	if err != nil {
		return err
	}
	replacement, err := yamlOf(data)
	if err != nil {
		return err
	}
	return file(".csi.yaml", replacement)
}
