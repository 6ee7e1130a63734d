package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/dryrun"
)

// maxManifests bounds the size of manifests.
const maxManifests = 16 << 20

// mapOptions are the flags of map.
type mapOptions struct {
	config, driver string
	file           string
	node           dryrun.Node
	format         outputFormat
}

func newMap() *cobra.Command {
	o := mapOptions{format: outputFormat{formats: []string{asYAML, asJSON}}}
	c := &cobra.Command{
		Use:   "map [flags] [CALLOUT ARGUMENT...]",
		Short: "Show what the CSI driver would be asked for a volume",
		Long: `Show each request that the CSI driver would get in the life of a volume, with
secrets masked. Nothing is changed: no driver is called, no directory is made.

The volume is given as manifests (-f: PersistentVolumes and Pods, with their
claims, Secrets and CSIDrivers if they matter), or as a callout: its arguments, or a
line of a log with them in it (-f as well).

The capabilities of the CSI driver decide what it is asked. --capability takes:

    ` + strings.Join(dryrun.Capabilities(), "\n    ") + `

Those that both services may have mean both. Without a controllerEndpoint in the
configuration the controller service is not asked.`,
		Example: `  kubectl get pv pv1 -o yaml | flex2csi map -f -
  flex2csi map mount /var/lib/kubelet/pods/…/pv1 '{"volumeID":"vol-1", …}'`,
		DisableFlagsInUseLine: true,
		Args:                  cobra.ArbitraryArgs,
		RunE:                  func(c *cobra.Command, args []string) error { return o.run(args, streams(c)) },
	}
	set := c.Flags()
	// Arguments after a callout belong to it, also with a dash.
	set.SetInterspersed(false)
	addConfig(set, &o.config)
	set.StringVarP(&o.file, "filename", "f", "", "`file` with manifests or a line of a log; - is standard input")
	set.StringVar(&o.driver, "driver", "", "`vendor/name` of the FlexVolume driver, if the callout does not have it")
	set.BoolVar(&o.node.ControlPlaneAttaches, "attach", false, "the FlexVolume driver is installed with --attach")
	set.BoolVar(&o.node.Cluster, "in-cluster", false, "flex2csi serve has access to the API server")
	set.StringSliceVar(&o.node.Capabilities, "capability", dryrun.DefaultCapabilities(), "`names` of what the CSI driver can do")
	set.StringVar(&o.node.KubeletDir, "kubelet-dir", "", "`directory` of the kubelet (default: that of the callout, or /var/lib/kubelet)")
	set.StringVar(&o.node.Name, "node-name", "node-1", "`name` of the node in Kubernetes")
	set.StringVar(&o.node.ID, "node-id", "", "`id` of the node for the CSI driver")
	o.format.add(c)
	return c
}

func (o *mapOptions) run(args []string, env environment) error {
	if (o.file == "") == (len(args) == 0) {
		return usagef("give the volume either with -f or as a callout")
	}
	if o.file == "-" && o.config == "-" {
		return usagef("standard input cannot be both the configuration and the volume")
	}
	c, err := loadConfig(bridgeconfig.Loader{}, o.config, env)
	if err != nil {
		return err
	}
	volumes, err := o.volumes(args, env)
	if err != nil {
		return err
	}
	for _, v := range volumes {
		if o.driver != "" && v.FlexDriver == "" {
			v.FlexDriver = o.driver
		}
	}
	plans, err := dryrun.Plans(c, o.node, volumes)
	if err != nil {
		return err
	}
	return o.print(plans, env.out)
}

func (o *mapOptions) volumes(args []string, env environment) ([]*dryrun.Volume, error) {
	if o.file == "" {
		v, err := dryrun.FromCall(o.driver, args)
		return []*dryrun.Volume{v}, err
	}
	in := env.in
	if o.file != "-" {
		file, err := os.Open(o.file)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		in = file
	}
	text, err := io.ReadAll(io.LimitReader(in, maxManifests))
	if err != nil {
		return nil, err
	}
	volumes, err := dryrun.Find(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.file, err)
	}
	return volumes, nil
}

// print prints all plans, and fails if one of them has an error.
func (o *mapOptions) print(plans []*dryrun.Plan, out io.Writer) error {
	var failed error
	for i, p := range plans {
		text, err := p.YAML()
		if err != nil {
			return err
		}
		if i > 0 && o.format.chosen == asYAML {
			text = append([]byte("---\n"), text...)
		}
		if err := o.format.printYAML(out, text); err != nil {
			return err
		}
		for _, s := range p.Steps {
			if s.Err != nil {
				failed = fmt.Errorf("%s of volume %s would fail: %s", s.Callout, p.Volume, p.Redact(s.Err.Error()))
			}
		}
	}
	return failed
}
