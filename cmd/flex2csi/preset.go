package main

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/pflag"

	"github.com/flex2csi/flex2csi/internal/preset"
)

// presetOptions are the flags of preset.
type presetOptions struct{ set []string }

func (o *presetOptions) flags(env environment) *pflag.FlagSet {
	set := flags("preset", `Configurations for FlexVolume drivers that many people have used: which CSI
driver takes their volumes, and how their options become what that one wants.

list shows which there are, and what has to be filled in. show prints one, to be
read and edited, or several as one configuration.

  flex2csi preset list
  flex2csi preset show --set secret=cephfs-user rook-cephfs rook-rbd > config.yaml
  flex2csi check --config config.yaml`, env)
	// The flags follow the word, and may follow the names.
	set.SetInterspersed(true)
	set.StringArrayVar(&o.set, "set", nil, "show: fill in a place, `name=value`. May be given more than once")
	return set
}

func presets(args []string, env environment) error {
	var o presetOptions
	set := o.flags(env)
	if err := set.Parse(args); err != nil {
		return &usageError{err}
	}
	switch what, names := set.Arg(0), set.Args(); {
	case what == "list" && len(names) == 1 && len(o.set) == 0:
		return listPresets(env.out)
	case what == "list":
		return usagef("list takes nothing else")
	case what == "show" && len(names) == 1:
		return usagef("which preset? flex2csi preset list has their names")
	case what == "show":
		return o.show(names[1:], env)
	default:
		return usagef("say list or show")
	}
}

func listPresets(out io.Writer) error {
	all, err := preset.All()
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NAME\tFLEXVOLUME DRIVER\tCSI DRIVER\tLIVE\tTO FILL IN\tNEEDS")
	for _, p := range all {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", p.Name, p.FlexDriver, p.CSIDriver, p.Live, openNames(p), p.Needs)
	}
	return table.Flush()
}

// openNames are the open places of a preset, or a dash.
func openNames(p preset.Preset) string {
	if len(p.Open) == 0 {
		return "-"
	}
	names := make([]string, len(p.Open))
	for i, o := range p.Open {
		names[i] = o.Name
	}
	return strings.Join(names, ", ")
}

func (o *presetOptions) show(names []string, env environment) error {
	var chosen []preset.Preset
	for _, name := range names {
		p, err := preset.Get(name)
		if err != nil {
			return usagef("%v", err)
		}
		chosen = append(chosen, p)
	}
	if err := o.fill(chosen); err != nil {
		return err
	}
	if err := sameDriver(chosen); err != nil {
		return err
	}
	if _, err := io.WriteString(env.out, preset.Document(chosen)); err != nil {
		return err
	}
	for _, p := range chosen {
		for _, open := range p.Open {
			fmt.Fprintf(env.err, "note: %s: %s is to be filled in: %s\n", p.Name, open.Name, open.What)
		}
	}
	return nil
}

// fill fills places in. A value goes into YAML and there into an expression,
// perhaps in the middle of a text, so that only such values are taken as mean
// themselves everywhere.
func (o *presetOptions) fill(chosen []preset.Preset) error {
	for _, arg := range o.set {
		name, value, ok := strings.Cut(arg, "=")
		if !ok {
			return usagef("--set %s: want name=value", arg)
		}
		if !regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/-]*$`).MatchString(value) {
			return usagef("--set %s: the value may have letters, digits and ._/- in it, and begins with a letter or digit; write others into the file", name)
		}
		found := false
		for i, p := range chosen {
			if !slices.Contains(strings.Split(openNames(p), ", "), name) {
				continue
			}
			filled, err := p.Fill(name, value)
			if err != nil {
				return err
			}
			chosen[i], found = filled, true
		}
		if !found {
			return usagef("--set %s: nothing of that name is to be filled in", name)
		}
	}
	return nil
}

// sameDriver refuses what would be no valid configuration.
func sameDriver(chosen []preset.Preset) error {
	first := map[string]string{}
	for _, p := range chosen {
		if other, ok := first[p.FlexDriver]; ok {
			return usagef("%s and %s are both for the FlexVolume driver %s: a configuration has each once", other, p.Name, p.FlexDriver)
		}
		first[p.FlexDriver] = p.Name
	}
	return nil
}
