package migrate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/flex2csi/flex2csi/internal/yamltext"
)

// JSON is the plan for programs.
func (p *Plan) JSON() ([]byte, error) { return indented(p) }

// YAML is the plan for programs, and for people to edit.
func (p *Plan) YAML() ([]byte, error) { return yamlFrom(p) }

// ObjectNames are the volumes, as type/name.
func (p *Plan) ObjectNames() (names []string) {
	for _, v := range p.Volumes {
		names = append(names, "persistentvolume/"+v.Name)
	}
	return names
}

func indented(value any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(value)
	return b.Bytes(), err
}

func yamlFrom(value any) ([]byte, error) {
	data, err := encode(value)
	if err != nil {
		return nil, err
	}
	return yamltext.FromJSON(data)
}

// Write writes the plan into a directory, which is new or empty: plan.yaml, and
// for each volume the old object with all its fields (NAME.old.json, and NAME.old.yaml
// for people) and the replacement (NAME.csi.yaml).
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

func (v *PlannedVolume) write(dir string) error {
	file := func(suffix string, data []byte) error {
		return os.WriteFile(filepath.Join(dir, v.Name+suffix), data, 0o600)
	}
	object, err := encode(v.Original.object)
	if err != nil {
		return err
	}
	old, err := yamltext.FromJSON(object)
	if err != nil {
		return err
	}
	if err := errors.Join(file(".old.json", object), file(".old.yaml", old)); err != nil || v.Replacement == nil {
		return err
	}
	data, err := v.Replacement.MarshalJSON()
	if err != nil {
		return err
	}
	replacement, err := yamltext.FromJSON(data)
	if err != nil {
		return err
	}
	return file(".csi.yaml", replacement)
}
