package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/flex2csi/flex2csi/internal/assess"
	"github.com/flex2csi/flex2csi/internal/kube"
	"github.com/flex2csi/flex2csi/internal/yamltext"
)

// assessOptions are the flags of assess.
type assessOptions struct {
	api    apiAccess
	files  []string
	config string
	failOn string
	format outputFormat
}

func newAssess() *cobra.Command {
	o := assessOptions{format: outputFormat{formats: []string{table, wide, asJSON, asYAML, asCSV, asHTML}}}
	c := &cobra.Command{
		Use:   "assess",
		Short: "Find the FlexVolumes of a cluster or of manifests, and say what fits them",
		Long: `Find the FlexVolumes of a cluster, or of manifests (-f), and say which preset fits
each driver, what stands in the way of CSI, and what to do next. It reads only, and
needs nothing that is installed in the cluster.

It finds PersistentVolumes, inline volumes of pods and of workload templates, and
what makes new FlexVolumes: StorageClasses, pending claims, generic ephemeral volumes
and claim templates of StatefulSets. With --config it lists the pods and templates
that the policy of an installation with this configuration refuses.`,
		Example: `  flex2csi assess
  flex2csi assess --config config.yaml
  flex2csi assess -o html >assessment.html
  flex2csi assess -f manifests/ --fail-on flexvolumes`,
		Args: noArguments,
		RunE: o.run,
	}
	c.Flags().StringArrayVarP(&o.files, "filename", "f", nil, "`file` or directory with manifests instead of a cluster; - is standard input; may be repeated")
	c.Flags().StringVar(&o.config, "config", "", "BridgeConfiguration, a `file`: list the pods and templates with inline volumes that flex2csi would have refused; - is standard input")
	addChoice(c, &o.failOn, []string{"flexvolumes"}, "fail-on", "", "fail if this `finding` is left, or not all could be read")
	o.format.add(c)
	o.api.add(c)
	o.api.excludes(c, "filename")
	return c
}

func (o *assessOptions) run(c *cobra.Command, _ []string) error {
	if o.config == "-" && slices.Contains(o.files, "-") {
		return usagef("standard input cannot be both the configuration and the manifests: put one into a file")
	}
	ctx, stop := untilInterrupted(c)
	defer stop()
	env := streams(c)
	configuration, err := configText(o.config, env)
	if err != nil {
		return err
	}
	in, err := o.input(ctx, env)
	if err != nil {
		return err
	}
	in.Configuration = configuration
	found, err := assess.Assess(in, time.Now())
	if err != nil {
		return err
	}
	if err := o.format.print(env.out, found, found.Show); err != nil {
		return err
	}
	if o.failOn != "" && found.FlexVolumes > 0 {
		return fmt.Errorf("%d objects have or make FlexVolumes; do not upgrade to a release without FlexVolume", found.FlexVolumes)
	}
	if o.failOn != "" && len(found.Incomplete) > 0 {
		return fmt.Errorf("no FlexVolume was found, but not all was read: %s", some(found.Incomplete))
	}
	return nil
}

func (o *assessOptions) input(ctx context.Context, env environment) (*assess.Input, error) {
	if len(o.files) > 0 {
		return manifests(o.files, env)
	}
	cluster, err := o.api.connect(kube.Options{UserAgent: "flex2csi-assess"})
	if err != nil {
		return nil, err
	}
	in := &assess.Input{Source: cluster.Server()}
	if in.ServerVersion, err = cluster.Version(ctx); err != nil {
		return nil, err
	}
	return in, assess.Cluster(ctx, cluster.Objects(), in)
}

// manifests reads files.
func manifests(files []string, env environment) (*assess.Input, error) {
	in := &assess.Input{Source: strings.Join(files, ", ")}
	for _, path := range files {
		err := yamltext.OpenManifest(path, env.in, func(name string, r io.Reader) error { return assess.Manifests(name, r, in) })
		if err != nil {
			return nil, err
		}
	}
	return in, in.Foreign()
}
