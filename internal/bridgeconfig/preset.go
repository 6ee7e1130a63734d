package bridgeconfig

// This file has configurations for common FlexVolume drivers: the CSI driver that
// replaces them, and the mapping of their options.
//
// A preset is a BridgeConfiguration of one driver in presets/NAME.yaml. The comment before
// it belongs to it: the first line is the title, two more say whether volumes can be
// handed over live and what is required. The rest is documentation: options, differences,
// sources, and what was not verified. Values that only the operator knows are
// placeholders ([bridgeconfig.OpenPlace]).

import (
	"embed"
	"fmt"
	"path"
	"strings"

	"go.yaml.in/yaml/v3"
)

//go:embed presets/*.yaml
var files embed.FS

// A Preset is a configuration of a driver.
type Preset struct {
	Name       string
	Title      string
	FlexDriver string
	CSIDriver  string
	// Live says whether a volume that the bridge has mounted can be handed over
	// to the kubelet's CSI plugin under a running pod.
	Live string
	// Needs is what is required besides the CSI driver.
	Needs string
	// Open are the placeholders, each name once.
	Open []OpenPlace
	// ClassParameters translates the parameters of a StorageClass; empty: not known.
	ClassParameters string
	// Text is the whole file.
	Text string
}

// Presets returns the presets, sorted by name.
func Presets() ([]Preset, error) {
	entries, err := files.ReadDir("presets")
	if err != nil {
		return nil, err
	}
	var all []Preset
	for _, e := range entries {
		text, err := files.ReadFile("presets/" + e.Name())
		if err != nil {
			return nil, err
		}
		p, err := parse(strings.TrimSuffix(e.Name(), path.Ext(e.Name())), string(text))
		if err != nil {
			return nil, fmt.Errorf("preset %s: %w", e.Name(), err)
		}
		all = append(all, p)
	}
	return all, nil
}

// GetPreset returns a preset by name.
func GetPreset(name string) (Preset, error) {
	all, err := Presets()
	if err != nil {
		return Preset{}, err
	}
	names := make([]string, 0, len(all))
	for _, p := range all {
		if p.Name == name {
			return p, nil
		}
		names = append(names, p.Name)
	}
	if names := near(all, name); len(names) > 0 {
		return Preset{}, fmt.Errorf("there is no preset %q: did you mean %s?", name, strings.Join(names, " or "))
	}
	return Preset{}, fmt.Errorf("there is no preset %q, only %s", name, strings.Join(names, ", "))
}

func parse(name, text string) (Preset, error) {
	p := Preset{Name: name, Text: text}
	for line := range strings.Lines(text) {
		comment, ok := strings.CutPrefix(line, "#")
		if !ok {
			break
		}
		comment = strings.TrimSpace(comment)
		if p.Title == "" {
			p.Title = comment
		}
		if live, ok := strings.CutPrefix(comment, "live: "); ok {
			p.Live = live
		}
		if needs, ok := strings.CutPrefix(comment, "needs: "); ok {
			p.Needs = needs
		}
	}
	// With a placeholder in a name this is no valid configuration yet.
	var names struct {
		Drivers []struct {
			FlexDriver string `yaml:"flexDriver"`
			CSIDriver  string `yaml:"csiDriver"`

			ClassParameters string `yaml:"classParameters"`
		} `yaml:"drivers"`
	}
	if err := yaml.Unmarshal([]byte(text), &names); err != nil {
		return Preset{}, err
	}
	if len(names.Drivers) != 1 {
		return Preset{}, fmt.Errorf("%d drivers, want one", len(names.Drivers))
	}
	d := names.Drivers[0]
	p.FlexDriver, p.CSIDriver, p.ClassParameters = d.FlexDriver, d.CSIDriver, d.ClassParameters
	open, err := OpenPlaces([]byte(text))
	if err != nil {
		return Preset{}, err
	}
	seen := map[string]bool{}
	for _, o := range open {
		if !seen[o.Name] {
			p.Open = append(p.Open, o)
		}
		seen[o.Name] = true
	}
	return p, nil
}

// After returns what follows a placeholder, if that is a punctuation mark.
func (p Preset) After(name string) string {
	_, rest, _ := strings.Cut(p.Text, OpenMark+name)
	_, rest, _ = strings.Cut(rest, ">")
	if rest == "" || !strings.ContainsRune("./-_", rune(rest[0])) {
		return ""
	}
	return rest[:1]
}

// Fill returns the preset with a value for a placeholder.
func (p Preset) Fill(name, value string) (Preset, error) {
	return parse(p.Name, Fill(p.Text, name, value))
}

// driversLine begins the drivers of a file.
const driversLine = "\ndrivers:\n"

// PresetDocument returns one configuration with all these presets and their comments.
func PresetDocument(presets []Preset) string {
	if len(presets) == 1 {
		return presets[0].Text
	}
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: %s\nkind: %s%s", APIVersion, Kind, driversLine)
	for _, p := range presets {
		before, driver, _ := strings.Cut(p.Text, driversLine)
		b.WriteString("\n")
		for line := range strings.Lines(before) {
			if strings.HasPrefix(line, "#") {
				b.WriteString(line)
			}
		}
		b.WriteString(driver)
	}
	return b.String()
}
