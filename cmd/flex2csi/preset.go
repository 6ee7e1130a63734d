package main

import (
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/report"
)

func newPreset() *cobra.Command {
	return group(&cobra.Command{
		Use:   "preset",
		Short: "Print configurations for widely used FlexVolume drivers",
		Long: `Print configurations for widely used FlexVolume drivers: which CSI driver takes
their volumes, and how their options become those of the CSI driver.`,
		Example: `  flex2csi preset list
  flex2csi preset show --set secret=cephfs-user rook-cephfs rook-rbd >config.yaml
  flex2csi check --config config.yaml`,
	}, newPresetList(), newPresetShow())
}

func newPresetList() *cobra.Command {
	format := outputFormat{formats: []string{table, asJSON, asYAML, asName}}
	c := &cobra.Command{
		Use:   "list",
		Short: "List the presets, with what has to be filled in",
		Args:  noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			all, err := bridgeconfig.Presets()
			if err != nil {
				return err
			}
			list := listOfPresets(all)
			return format.print(streams(c).out, list, list.show)
		},
	}
	format.add(c)
	return c
}

// A presetList is the document of preset list.
type presetList struct {
	APIVersion string       `json:"apiVersion"`
	Kind       string       `json:"kind"`
	Presets    []presetItem `json:"presets"`
}

type presetItem struct {
	Name       string   `json:"name"`
	Title      string   `json:"title"`
	FlexDriver string   `json:"flexDriver"`
	CSIDriver  string   `json:"csiDriver"`
	Live       string   `json:"live"`
	Open       []string `json:"open,omitempty"`
	Needs      string   `json:"needs"`
}

func listOfPresets(all []bridgeconfig.Preset) *presetList {
	list := &presetList{APIVersion: bridgeconfig.APIVersion, Kind: "PresetList"}
	for _, p := range all {
		list.Presets = append(list.Presets, presetItem{p.Name, p.Title, p.FlexDriver, p.CSIDriver, p.Live, openNames(p), p.Needs})
	}
	return list
}

func (l *presetList) show(report.View) *report.Report {
	rows := report.Of(l.Presets, func(p presetItem) []string {
		return []string{p.Name, p.FlexDriver, p.CSIDriver, p.Live, strings.Join(p.Open, ", "), p.Needs}
	}, "Name", "FlexVolume driver", "CSI driver", "Live", "To fill in", "Needs")
	return &report.Report{Sections: []report.Section{{Rows: rows}}}
}

// ObjectNames returns the arguments of preset show.
func (l *presetList) ObjectNames() (names []string) {
	for _, p := range l.Presets {
		names = append(names, p.Name)
	}
	return names
}

// openNames returns the placeholders of a preset.
func openNames(p bridgeconfig.Preset) (names []string) {
	for _, o := range p.Open {
		names = append(names, o.Name)
	}
	return names
}

// presetShowOptions are the flags of preset show.
type presetShowOptions struct{ set []string }

func newPresetShow() *cobra.Command {
	var o presetShowOptions
	c := &cobra.Command{
		Use:   "show NAME...",
		Short: "Print a preset, or several as one configuration",
		Long: `Print a preset, to be read and edited, or several as one configuration. Standard
error lists what has to be filled in.`,
		Args: func(_ *cobra.Command, names []string) error {
			if len(names) == 0 {
				return usagef("which preset? flex2csi preset list has their names")
			}
			return nil
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			all, _ := bridgeconfig.Presets() // a completion has no way to say an error
			return listOfPresets(all).ObjectNames(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(c *cobra.Command, names []string) error { return o.show(names, streams(c)) },
	}
	c.Flags().StringArrayVar(&o.set, "set", nil, "fill in a place, `name=value`; may be repeated")
	return c
}

func (o *presetShowOptions) show(names []string, env environment) error {
	var chosen []bridgeconfig.Preset
	for _, name := range names {
		p, err := bridgeconfig.GetPreset(name)
		if err != nil {
			return usagef("%v", err)
		}
		chosen = append(chosen, p)
	}
	if err := o.fill(chosen); err != nil {
		return err
	}
	if err := namedOnce(chosen); err != nil {
		return err
	}
	if _, err := io.WriteString(env.out, bridgeconfig.PresetDocument(chosen)); err != nil {
		return err
	}
	for _, p := range chosen {
		for _, open := range p.Open {
			fmt.Fprintf(env.err, "note: %s: %s is to be filled in: %s\n", p.Name, open.Name, open.What)
		}
	}
	return nil
}

// fill replaces placeholders. A value goes into an expression in YAML, perhaps within a
// string, so it may have only characters without a meaning there.
func (o *presetShowOptions) fill(chosen []bridgeconfig.Preset) error {
	places := map[string]bool{} // true: filled in
	for _, p := range chosen {
		for _, name := range openNames(p) {
			places[name] = false
		}
	}
	for _, arg := range o.set {
		name, value, ok := strings.Cut(arg, "=")
		if !ok {
			return usagef("--set %s: want name=value", arg)
		}
		if err := notPlace(places, name); err != nil {
			return err
		}
		places[name] = true
		if !regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/-]*$`).MatchString(value) {
			return usagef("--set %s: the value may have letters, digits and ._/- in it, and begins with a letter or digit; write others into the file", name)
		}
		for i, p := range chosen {
			if !slices.Contains(openNames(p), name) {
				continue
			}
			if after := p.After(name); after != "" && strings.HasSuffix(value, after) {
				return usagef("--set %s: %s adds the %q at the end: leave it out", arg, p.Name, after)
			}
			filled, err := p.Fill(name, value)
			if err != nil {
				return err
			}
			chosen[i] = filled
		}
	}
	return nil
}

// notPlace says why a name cannot be filled in, or returns nil.
func notPlace(places map[string]bool, name string) error {
	filled, ok := places[name]
	switch {
	case filled:
		return usagef("--set %s: given twice", name)
	case ok:
		return nil
	case len(places) == 0:
		return usagef("--set %s: there is nothing to be filled in", name)
	}
	return usagef("--set %s: nothing of that name is to be filled in, only %s", name, strings.Join(slices.Sorted(maps.Keys(places)), ", "))
}

// namedOnce refuses presets that would be no valid configuration together.
func namedOnce(chosen []bridgeconfig.Preset) error {
	seen := map[string]bool{}
	for _, p := range chosen {
		if seen[p.Name] {
			return usagef("%s is named twice", p.Name)
		}
		seen[p.Name] = true
	}
	return nil
}
