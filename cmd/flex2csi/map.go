package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/flex2csi/flex2csi/internal/assess"
	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/kube"
	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/internal/yamltext"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// mapOptions are the flags of map.
type mapOptions struct {
	config, driver string
	files          []string
	node           assess.Node
	api            apiAccess
	format         outputFormat
}

func newMap() *cobra.Command {
	o := mapOptions{format: outputFormat{formats: []string{table, wide, asJSON, asYAML, asName}}}
	c := &cobra.Command{
		Use:   "map [flags] {-f FILE [NAME...] | CALLOUT ARGUMENT...}",
		Short: "Show what the CSI driver would be asked for volumes",
		Long: `Show whether volumes work with a configuration, and each request that the CSI
driver would get in the life of a volume, with secrets masked. Nothing is changed:
no driver is called, no directory is made.

Volumes are given as manifests (-f: PersistentVolumes and Pods, with their claims,
Secrets and CSIDrivers), of any number, or as a callout with its arguments. Several
volumes are printed as a table with a summary, one volume as YAML with each request.
NAME selects volumes: a PersistentVolume, a claim (namespace/name) or an inline
volume. The exit status is 1 if one of the volumes does not work.

The capabilities of the CSI driver decide what it is asked. --capability takes:

    ` + strings.Join(assess.Capabilities(), "\n    ") + `

Those that both services may have mean both. Without a controllerEndpoint in the
configuration the controller service is not asked.`,
		Example: `  kubectl get pv,csidriver -o yaml | flex2csi map --in-cluster -f -
  kubectl get pv,csidriver -o yaml | flex2csi map --in-cluster -f - pv1
  flex2csi map mount /var/lib/kubelet/pods/…/pv1 '{"volumeID":"vol-1", …}'`,
		DisableFlagsInUseLine: true,
		Args:                  cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			auto := !c.Flags().Changed("output")
			return o.run(c.Context(), args, auto, streams(c))
		},
	}
	set := c.Flags()
	// Arguments after a callout belong to it, also with a dash.
	set.SetInterspersed(false)
	addConfig(set, &o.config)
	set.StringArrayVarP(&o.files, "filename", "f", nil, "`file` or directory with manifests; - is standard input; may be repeated")
	set.StringVar(&o.driver, "driver", "", "`vendor/name` of the FlexVolume driver, if the callout does not have it")
	set.BoolVar(&o.node.ControlPlaneAttaches, "attach", false, "the FlexVolume driver is installed with --attach")
	set.BoolVar(&o.node.Cluster, "in-cluster", false, "flex2csi serve has access to the API server")
	o.api.addKubectl(c)
	set.StringSliceVar(&o.node.Capabilities, "capability", assess.DefaultCapabilities(), "`names` of what the CSI driver can do")
	set.StringVar(&o.node.KubeletDir, "kubelet-dir", "", "`directory` of the kubelet (default: that of the callout, or /var/lib/kubelet)")
	set.StringVar(&o.node.Name, "node-name", "node-1", "`name` of the node in Kubernetes")
	set.StringVar(&o.node.ID, "node-id", "", "`id` of the node for the CSI driver")
	o.format.add(c)
	completes(c, "capability", separated(fixed(assess.Capabilities())))
	completes(c, "node-name", o.api.names(nodeNames()))
	completes(c, "driver", o.api.names(flexDrivers()))
	output := set.Lookup("output")
	output.DefValue, output.Usage = "", output.Usage+" (default: yaml for one volume, a table of several)"
	return c
}

func (o *mapOptions) run(ctx context.Context, args []string, auto bool, env environment) error {
	if err := o.check(args); err != nil {
		return err
	}
	c, err := loadConfig(bridgeconfig.Loader{}, o.config, env)
	if err != nil {
		return err
	}
	in, err := o.input(args, env)
	if err != nil {
		return err
	}
	if o.api.given() {
		o.node.Cluster = true
		if in.CSIDrivers, err = o.csiDrivers(ctx); err != nil {
			return err
		}
	}
	planner, err := assess.NewPlanner(c, o.node, in.CSIDrivers)
	if err != nil {
		return err
	}
	found := planner.Report(in.Volumes)
	if len(o.files) > 0 && len(args) > 0 {
		if found, err = found.Select(args); err != nil {
			return fmt.Errorf("%s: %w", strings.Join(o.files, ", "), err)
		}
	}
	if auto && len(found.Plans) == 1 {
		o.format.chosen = asYAML
	}
	if err := o.print(planner, found, env.out); err != nil {
		return err
	}
	o.askCSIDrivers(found.WithoutCSIDriver, env.err)
	if err := notOK(found); err != nil || len(in.Unclear) == 0 {
		return err
	}
	return fmt.Errorf("the volumes work, but not all was understood: %s", some(in.Unclear))
}

// askCSIDrivers asks for CSIDriver objects that would decide.
func (o *mapOptions) askCSIDrivers(names []string, out io.Writer) {
	where, do := "in the input", "add csidriver to kubectl get, or give --kubeconfig"
	switch {
	case o.api.given():
		where, do = "in the cluster", "install the CSI driver first"
	case len(o.files) == 0:
		where, do = "known", "give --kubeconfig"
	}
	for _, name := range names {
		fmt.Fprintf(out, "note: CSIDriver %s, which says whether volumes get attached, is not %s: %s\n", name, where, do)
	}
}

// check refuses arguments that do not go together.
func (o *mapOptions) check(args []string) error {
	if len(o.files) == 0 && len(args) == 0 || len(o.files) > 0 && len(args) > 0 && flex.Command(args[0]).Known() {
		return usagef("give the volume either with -f or as a callout")
	}
	if o.config == "-" && slices.Contains(o.files, "-") {
		return usagef("standard input cannot be both the configuration and the volume")
	}
	if len(o.files) == 0 {
		if _, err := os.Stat(args[0]); err == nil && !flex.Command(args[0]).Known() {
			return usagef("%s is a file, and no callout: give it with -f", args[0])
		}
		return nil
	}
	for _, name := range args {
		if strings.HasPrefix(name, "-") {
			return usagef("%s comes after a name: put flags before names", name)
		}
	}
	return nil
}

func (o *mapOptions) input(args []string, env environment) (*assess.MapInput, error) {
	if len(o.files) == 0 {
		v, err := assess.FromCall(o.driver, args)
		return &assess.MapInput{Volumes: []*assess.FlexVolume{v}}, err
	}
	reader := assess.NewMapReader()
	for _, path := range o.files {
		if err := yamltext.OpenManifest(path, env.in, func(name string, r io.Reader) error {
			if err := reader.Read(r); err != nil {
				return fmt.Errorf("read %s: %w", name, err)
			}
			return nil
		}); err != nil {
			return nil, err
		}
	}
	in, err := reader.Input()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", strings.Join(o.files, ", "), err)
	}
	for _, v := range in.Volumes {
		v.FlexDriver = cmp.Or(v.FlexDriver, o.driver)
	}
	return in, nil
}

// csiDrivers asks the API server.
func (o *mapOptions) csiDrivers(ctx context.Context) (map[string]csivol.DriverInfo, error) {
	cluster, err := o.api.connect(kube.Options{})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	all, err := cluster.ListDrivers(ctx)
	infos := make(map[string]csivol.DriverInfo, len(all))
	for i := range all {
		infos[all[i].Name] = objects.DriverInfo(&all[i])
	}
	return infos, err
}

// notOK returns nil if all volumes work.
func notOK(r *assess.MapResult) error {
	bad := r.Bad()
	if len(bad) == 0 {
		return nil
	}
	if len(r.Plans) == 1 {
		return errors.New(bad[0].Message())
	}
	names := make([]string, len(bad))
	for i, p := range bad {
		names[i] = cmp.Or(p.DisplayName(), "one without a name")
	}
	return fmt.Errorf("%d of %d volumes do not work: %s", len(bad), len(r.Plans), some(names))
}
