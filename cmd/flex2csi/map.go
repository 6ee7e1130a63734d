package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/dryrun"
)

// maxManifests bounds what is read of manifests.
const maxManifests = 16 << 20

// mapFlags are those of map.
type mapFlags struct {
	config, driver *string
	file           string
	node           dryrun.Node
}

func (f *mapFlags) set(env environment) *pflag.FlagSet {
	set := flags("map", `Show each request that the CSI driver would get in the life of a volume, secrets
masked. Nothing is touched: no driver is asked, no directory made.

The volume is given as manifests (-f: PersistentVolumes and Pods, with their
claims, Secrets and CSIDrivers if they matter), or as a callout: its arguments, or a line of
a log with them in it (-f as well).

  kubectl get pv pv1 -o yaml | flex2csi map -f -
  flex2csi map mount /var/lib/kubelet/pods/…/pv1 '{"volumeID":"vol-1", …}'

What the CSI driver can do decides what it is asked. Known to --capability are:
  `+strings.Join(dryrun.Capabilities(), "\n  ")+`
Those that both services may have mean both. Without a controllerEndpoint in the
configuration the controller service is not asked.`, env)
	f.config = configFlag(set)
	set.StringVarP(&f.file, "filename", "f", "", "manifests or a line of a log, a `file`; - is standard input")
	f.driver = set.String("driver", "", "`vendor/name` of the FlexVolume driver, where a callout does not tell it")
	set.BoolVar(&f.node.ControlPlaneAttaches, "attach", false, "the FlexVolume driver is installed with --attach")
	set.BoolVar(&f.node.Cluster, "in-cluster", false, "flex2csi serve has access to the API server")
	set.StringSliceVar(&f.node.Capabilities, "capability", dryrun.DefaultCapabilities(), "what the CSI driver can do: `names`")
	set.StringVar(&f.node.KubeletDir, "kubelet-dir", "", "the kubelet's `directory` (default: that of the callout, or /var/lib/kubelet)")
	set.StringVar(&f.node.Name, "node-name", "node-1", "`name` of the node in Kubernetes")
	set.StringVar(&f.node.ID, "node-id", "", "what the CSI driver calls the node, an `id`")
	return set
}

func mapVolume(args []string, env environment) error {
	var f mapFlags
	set := f.set(env)
	if err := set.Parse(args); err != nil {
		return &usageError{err}
	}
	if (f.file == "") == (set.NArg() == 0) {
		return usagef("give the volume either with -f or as a callout")
	}
	if f.file == "-" && *f.config == "-" {
		return usagef("standard input cannot be both the configuration and the volume")
	}
	c, err := loadConfig(bridgeconfig.Loader{}, *f.config, env)
	if err != nil {
		return err
	}
	volumes, err := f.volumes(set.Args(), env)
	if err != nil {
		return err
	}
	for _, v := range volumes {
		if *f.driver != "" && v.FlexDriver == "" {
			v.FlexDriver = *f.driver
		}
	}
	plans, err := dryrun.Plans(c, f.node, volumes)
	if err != nil {
		return err
	}
	return printPlans(plans, env.out)
}

func (f *mapFlags) volumes(args []string, env environment) ([]*dryrun.Volume, error) {
	if f.file == "" {
		v, err := dryrun.FromCall(*f.driver, args)
		return []*dryrun.Volume{v}, err
	}
	in := env.in
	if f.file != "-" {
		file, err := os.Open(f.file)
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
		return nil, fmt.Errorf("%s: %w", f.file, err)
	}
	return volumes, nil
}

// printPlans prints all plans, and fails if one of them does.
func printPlans(plans []*dryrun.Plan, out io.Writer) error {
	var failed error
	for i, p := range plans {
		text, err := p.YAML()
		if err != nil {
			return err
		}
		if i > 0 {
			text = append([]byte("---\n"), text...)
		}
		if _, err := out.Write(text); err != nil {
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
