package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/flex2csi/flex2csi/internal/assess"
	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/kube"
	"github.com/flex2csi/flex2csi/internal/report"
)

// classesOptions are the flags of migrate classes.
type classesOptions struct {
	api      apiAccess
	home     ownNamespace
	files    []string
	config   string
	suffix   string
	sameName bool
	format   outputFormat
}

func newMigrateClasses() *cobra.Command {
	o := classesOptions{format: outputFormat{formats: []string{table, asJSON, asYAML}}}
	c := &cobra.Command{
		Use:   "classes [NAME...]",
		Short: "Show the CSI StorageClasses in place of those that make FlexVolumes",
		Long: `Show, for each StorageClass of which new volumes become FlexVolumes, the CSI
StorageClass in its place, and the commands that create it and change what names the
old one: claim templates of StatefulSets, generic ephemeral volumes and Pending
claims. It reads only. It also works when the last volume is migrated.

The CSI driver and the translation of parameters (classParameters) come from the
configuration of the bridge, else from migrated volumes and presets. -o yaml prints
manifests, and fails if something in them is to be filled in.`,
		Example: `  flex2csi migrate classes
  flex2csi migrate classes -o yaml >storageclasses.yaml && kubectl apply -f storageclasses.yaml
  flex2csi migrate classes fast --same-name`,
		RunE: o.run,
	}
	set := c.Flags()
	set.StringArrayVarP(&o.files, "filename", "f", nil, "`file` or directory with manifests instead of a cluster; - is standard input; may be repeated")
	set.StringVar(&o.config, "config", "", "BridgeConfiguration, a `file`; - is standard input (default: that of the daemons in the cluster)")
	set.StringVar(&o.suffix, "suffix", "-csi", "end of the new classes' names, a `text`")
	set.BoolVar(&o.sameName, "same-name", false, "keep the names: the commands delete and create each class, which cannot be changed")
	o.format.add(c)
	o.home.add(c, &o.api)
	o.api.add(c)
	o.api.excludes(c, "filename")
	c.MarkFlagsMutuallyExclusive("suffix", "same-name")
	return c
}

func (o *classesOptions) run(c *cobra.Command, names []string) error {
	if o.sameName {
		o.suffix = ""
	} else if o.suffix == "" {
		return usagef("--suffix is empty: use --same-name to keep the names")
	}
	if o.config == "-" && slices.Contains(o.files, "-") {
		return usagef("standard input cannot be both the configuration and the manifests: put one into a file")
	}
	ctx, stop := untilInterrupted(c)
	defer stop()
	env := streams(c)
	options := &assess.ClassOptions{Names: names, Suffix: o.suffix, Command: typed(c)}
	in, err := o.read(ctx, env, options)
	if err != nil {
		return err
	}
	plan, err := assess.ReplaceClasses(in, options)
	if err != nil {
		return err
	}
	switch o.format.chosen {
	case asYAML:
		text, err := plan.YAML()
		if err != nil {
			return err
		}
		if _, err := env.out.Write(text); err != nil {
			return err
		}
		return plan.Incomplete()
	case asJSON:
		if err := o.format.print(env.out, plan, nil); err != nil {
			return err
		}
		return plan.Incomplete()
	}
	return o.format.print(env.out, plan, plan.Show)
}

// read reads the objects and the configuration. There may be no bridge any more.
func (o *classesOptions) read(ctx context.Context, env environment, options *assess.ClassOptions) (*assess.Input, error) {
	var err error
	if o.config != "" {
		if options.Config, err = loadConfig(bridgeconfig.Loader{}, o.config, env); err != nil {
			return nil, err
		}
	}
	if len(o.files) > 0 {
		return manifests(o.files, env)
	}
	cluster, err := o.api.connect(kube.Options{UserAgent: migrateAgent})
	if err != nil {
		return nil, err
	}
	if o.config == "" {
		options.Config, err = migrateConfig(ctx, "", cluster.Objects(), o.home, env)
		if ctx.Err() != nil {
			return nil, err
		}
		if err != nil {
			fmt.Fprintf(env.err, "note: %v; migrated volumes and presets say which CSI driver\n", err)
		}
	}
	in := &assess.Input{Source: cluster.Server()}
	return in, assess.Cluster(ctx, cluster.Objects(), in)
}

// typed is a command with the flags that were given, but for the output.
func typed(c *cobra.Command) string {
	words := []string{c.CommandPath()}
	c.Flags().Visit(func(f *pflag.Flag) {
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for _, value := range values {
			if f.Name != "output" && f.Name != "token" { // which is a secret
				words = append(words, report.Quote("--"+f.Name+"="+value))
			}
		}
	})
	return strings.Join(words, " ")
}
