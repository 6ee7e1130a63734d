// Package yamltext writes YAML as people write it: two spaces, lists at the indentation
// of their key, no quotes that are not needed.
package yamltext

import (
	"bytes"
	"errors"
	"regexp"

	"go.yaml.in/yaml/v3"

	"github.com/flex2csi/flex2csi/internal/terminal"
)

// Encode writes a value, by its yaml tags, or a node.
func Encode(value any) ([]byte, error) {
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	e.CompactSeqIndent()
	err := errors.Join(e.Encode(value), e.Close())
	return b.Bytes(), err
}

// FromJSON writes JSON, which is YAML already, as people write that, in the same order.
func FromJSON(data []byte) ([]byte, error) {
	var n yaml.Node
	if err := yaml.Unmarshal(data, &n); err != nil {
		return nil, err
	}
	plainStyle(&n)
	return Encode(&n)
}

// ambiguous are texts that are something else to readers of YAML 1.1, such as
// kubectl: booleans and numbers to the base 60.
var ambiguous = regexp.MustCompile(`^(?i:y|n|yes|no|on|off)$|^[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?$`)

func plainStyle(n *yaml.Node) {
	n.Style = 0
	if n.Kind == yaml.ScalarNode && n.Tag == "!!str" && (ambiguous.MatchString(n.Value) || terminal.Safe(n.Value) != n.Value) { // escapes hold in quotes only
		n.Style = yaml.DoubleQuotedStyle
	}
	for _, child := range n.Content {
		plainStyle(child)
	}
}
