package assess

import (
	"bufio"
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

	"github.com/flex2csi/flex2csi/internal/flexuse"
	"github.com/flex2csi/flex2csi/internal/manifest"
	"github.com/flex2csi/flex2csi/internal/strict"
)

// Manifests reads YAML or JSON as a stream. A document that is not valid is noted in
// Input.Unread; the others are read.
func Manifests(name string, r io.Reader, in *Input) error {
	buffered := bufio.NewReader(r)
	in.found.Manifests = true
	d := decoder{name: name, in: in}
	start, err := buffered.Peek(2)
	if err == nil && start[0] == '{' && start[1] != '{' { // not a template
		return d.json(manifest.JSON(buffered))
	}
	return d.yaml(buffered)
}

type decoder struct {
	name string
	line int // of the document
	in   *Input
}

func (d *decoder) unread(err error) {
	d.in.Unread = append(d.in.Unread, fmt.Sprintf("read %s, document at line %d: %v", d.name, max(d.line, 1), err))
}

// json reads JSON documents one after another.
func (d *decoder) json(r io.Reader) error {
	for documents := json.NewDecoder(r); ; {
		var one json.RawMessage
		err := documents.Decode(&one)
		if errors.Is(err, io.EOF) {
			return nil
		}
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) || errors.Is(err, io.ErrUnexpectedEOF) {
			d.unread(err)
			return nil
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", d.name, err)
		}
		d.object(one)
	}
}

// yaml cuts YAML into documents, and a list as kubectl prints it into its items, which are
// parsed one by one: a parser needs many times the memory of the text.
func (d *decoder) yaml(r *bufio.Reader) error {
	var document, item bytes.Buffer
	inItems, start, itemStart := false, 1, 1
	flush := func(b *bytes.Buffer, line int) {
		if d.line = line; len(bytes.TrimSpace(b.Bytes())) > 0 {
			d.document(b.Bytes())
		}
		b.Reset()
	}
	for number := 1; ; number++ {
		line, err := r.ReadBytes('\n')
		switch text := bytes.TrimRight(line, " \t\r\n"); {
		case bytes.HasPrefix(line, []byte("---")) && (len(text) == 3 || text[3] == ' '):
			flush(&item, itemStart)
			flush(&document, start)
			inItems, start = false, number+1
			document.Write(text[3:]) // --- # a comment
			document.WriteByte('\n')
		case inItems && bytes.HasPrefix(line, []byte("- ")):
			flush(&item, itemStart)
			itemStart = number
			item.WriteString("  ")
			item.Write(line[2:])
		case inItems && item.Len() > 0 && (len(text) == 0 || line[0] == ' '):
			item.Write(line)
		default:
			flush(&item, itemStart)
			inItems = string(text) == "items:"
			document.Write(line)
		}
		if errors.Is(err, io.EOF) {
			flush(&item, itemStart)
			flush(&document, start)
			return nil
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", d.name, err)
		}
	}
}

func (d *decoder) document(text []byte) {
	data, err := yaml.YAMLToJSON(text)
	if err != nil {
		first, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
		if lower := strings.ToLower(first); strings.HasPrefix(lower, "error") || strings.HasPrefix(lower, "<") { // kubectl, a web page
			err = errors.New("it is no object of Kubernetes: " + strict.Clip(first))
		}
		d.unread(fmt.Errorf("%w; render templates first, for example with helm template", err))
		return
	}
	d.object(data)
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
	case utiljson.Unmarshal(data, &o) != nil, meta.Kind == "" && !flexuse.Any(o):
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
