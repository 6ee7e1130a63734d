package assess

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/internal/strict"
	"github.com/flex2csi/flex2csi/internal/yamltext"
)

// Manifests reads YAML or JSON as a stream. A document that is not valid is noted in
// Input.Unread; the others are read.
func Manifests(name string, r io.Reader, in *Input) error {
	in.found.Manifests = true
	d := decoder{name: name, in: in}
	err := yamltext.Documents(r, func(text string, line int) error {
		begins := strings.TrimLeft(text, "\r\n")
		d.line = line + strings.Count(text, "\n") - strings.Count(begins, "\n")
		d.document([]byte(begins))
		return nil
	})
	if syntax, ok := errors.AsType[*yamltext.SyntaxError](err); ok {
		d.unread(syntax.Err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	return nil
}

type decoder struct {
	name string
	line int // of the document
	in   *Input
}

func (d *decoder) unread(err error) {
	d.in.Unread = append(d.in.Unread, fmt.Sprintf("read %s, document at line %d: %v", d.name, max(d.line, 1), err))
}

func (d *decoder) document(text []byte) {
	data, err := text, error(nil)
	if !json.Valid(text) {
		data, err = yaml.YAMLToJSON(text)
	}
	if err != nil {
		first, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
		if lower := strings.ToLower(first); strings.HasPrefix(lower, "error") || strings.HasPrefix(lower, "<") { // kubectl, a web page
			err = errors.New("it is no object of Kubernetes: " + strict.Clip(first))
		}
		d.unread(fmt.Errorf("%w; render templates first, for example with helm template", err))
		return
	}
	var list []json.RawMessage // items of a List that do not begin at the left margin
	if json.Unmarshal(data, &list) != nil || list == nil {
		list = []json.RawMessage{data}
	}
	for _, one := range list {
		d.object(one)
	}
}

// object adds an object, or the items of a list. What is no object of Kubernetes has no kind;
// it may have FlexVolumes even so, such as the values of a chart.
func (d *decoder) object(data []byte) {
	var meta struct {
		Kind    string            `json:"kind"`
		Message string            `json:"message"`
		Items   []json.RawMessage `json:"items"`
	}
	var o map[string]any
	err := json.Unmarshal(data, &meta)
	switch {
	case string(data) == "null":
	case meta.Kind == "Status":
		d.unread(fmt.Errorf("it is no object, but an answer of the API server: %s", strict.Clip(meta.Message)))
	case err == nil && meta.Items != nil && strings.HasSuffix(meta.Kind, "List"):
		d.in.objects++
		for _, item := range meta.Items {
			d.object(item)
		}
	case utiljson.Unmarshal(data, &o) != nil, meta.Kind == "" && !objects.UsesFlexVolume(o):
		d.unread(errors.New("it is no object of Kubernetes: " + begins(data, o)))
	default:
		d.in.objects++
		if err := d.in.object(o); err != nil {
			d.unread(err)
		}
	}
}

// begins shows a foreign document, without values that may be secrets.
func begins(data []byte, o map[string]any) string {
	if bytes.HasPrefix(data, []byte("[")) {
		return "it is an array"
	}
	if text, ok := o["error"].(string); ok || o == nil { // kubectl's error: …
		return strict.Clip(cmp.Or(text, string(data)))
	}
	return "it has the keys " + strict.Clip(strings.Join(slices.Sorted(maps.Keys(o)), ", "))
}

// Foreign is an error if manifests were read and none of them is an object of Kubernetes:
// that there are no FlexVolumes is not known then.
func (in *Input) Foreign() error {
	switch {
	case in.objects > 0:
		return nil
	case len(in.Unread) == 0:
		return fmt.Errorf("read %s: it is empty; the command that was to write it has failed", in.Source)
	}
	return fmt.Errorf("%s; want manifests, as kubectl get -o yaml prints them", strings.Join(in.Unread, "; "))
}
