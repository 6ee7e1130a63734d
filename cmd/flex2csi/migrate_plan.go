package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/migrate"
)

// planOptions are the flags of migrate plan.
type planOptions struct {
	api       operatorAccess
	config    string
	selection migrate.Selection
	secrets   []string
	output    string
	dir       string
}

func (o *planOptions) flags(env environment) *pflag.FlagSet {
	set := flags("migrate", `Make CSI PersistentVolumes of FlexVolume ones, under the same name and the same
claim, with the mapping of the bridge.

plan reads only. For each volume it shows the CSI PersistentVolume that would be
made, what was looked at and found, what will be seen, what a person has to
decide, and whether it can be done live, after a pod restart, offline, or not.
Volumes are named, or chosen by the flags, which narrow each other.

  flex2csi migrate plan --all
  flex2csi migrate plan --claim shop/orders -o wide
  flex2csi migrate plan --driver example.com/disk --output-dir plan`, env)
	set.SetInterspersed(true)
	set.StringArrayVar(&o.selection.Claims, "claim", nil, "the volume of this claim, `namespace/name`. May be given more than once")
	set.StringSliceVarP(&o.selection.Namespaces, "namespace", "n", nil, "volumes of claims in these `namespaces`")
	set.StringVarP(&o.selection.Selector, "selector", "l", "", "volumes whose labels match, a `selector` as of kubectl")
	set.StringVar(&o.selection.ClaimSelector, "claim-selector", "", "volumes whose claims have labels that match, a `selector`")
	set.StringArrayVar(&o.selection.Drivers, "driver", nil, "volumes of this FlexVolume driver, `vendor/name`. May be given more than once")
	set.BoolVar(&o.selection.All, "all", false, "all FlexVolumes")
	set.StringVar(&o.config, "config", "", "the BridgeConfiguration, a `file`; - is standard input (default: that of the daemons in the cluster)")
	set.StringArrayVar(&o.secrets, "secret", nil, "the Secret for a stage whose secrets are a file on the nodes, `vendor/name:stage=namespace/name`")
	set.StringVarP(&o.output, "output", "o", "table", "table, wide, yaml or json: a `format`")
	set.StringVar(&o.dir, "output-dir", "", "write the plan, the old volumes and the replacements as files into this `directory`, which is new or empty")
	o.api.add(set)
	return set
}

func (o *planOptions) run(names []string, env environment) error {
	if err := o.complete(names); err != nil {
		return err
	}
	given, err := givenSecrets(o.secrets)
	if err != nil {
		return err
	}
	ctx, stop := untilInterrupted()
	defer stop()
	cluster, err := o.api.connect()
	if err != nil {
		return err
	}
	config, err := migrateConfig(ctx, o.config, cluster, env)
	if err != nil {
		return err
	}
	planner := &migrate.Planner{Reader: cluster, Config: config, Secrets: given, Server: cluster.Server(), Now: time.Now}
	plan, err := planner.Plan(ctx, &o.selection)
	if err != nil {
		return err
	}
	if o.dir != "" {
		if err := plan.Write(o.dir); err != nil {
			return fmt.Errorf("write the plan: %w", err)
		}
	}
	return o.print(plan, env)
}

// complete checks what was asked for.
func (o *planOptions) complete(names []string) error {
	o.selection.Names = names
	if o.selection.Empty() {
		return usagef("which volumes? Name some, or choose them with --claim, --namespace, --selector, --claim-selector or --driver; --all are all FlexVolumes")
	}
	if o.selection.All && len(names)+len(o.selection.Claims) > 0 {
		return usagef("--all are all FlexVolumes: name none besides")
	}
	for _, claim := range o.selection.Claims {
		if _, _, err := slashed("claim", claim); err != nil {
			return err
		}
	}
	if formats := []string{"table", "wide", "yaml", "json"}; !slices.Contains(formats, o.output) {
		return usagef("--output %s: want one of %s", o.output, strings.Join(formats, ", "))
	}
	return nil
}

// givenSecrets reads vendor/name:stage=namespace/name.
func givenSecrets(args []string) (map[string]csivol.SecretRef, error) {
	given := map[string]csivol.SecretRef{}
	for _, arg := range args {
		stage, secret, ok := strings.Cut(arg, "=")
		if driver, name, hasStage := strings.Cut(stage, ":"); !ok || !hasStage || !strings.Contains(driver, "/") || name == "" {
			return nil, usagef("--secret %s: want vendor/name:stage=namespace/name", arg)
		}
		namespace, name, err := slashed("secret", secret)
		if err != nil {
			return nil, err
		}
		given[stage] = csivol.SecretRef{Namespace: namespace, Name: name}
	}
	return given, nil
}

func (o *planOptions) print(plan *migrate.Plan, env environment) error {
	var text []byte
	var err error
	switch o.output {
	case "yaml":
		text, err = plan.YAML()
	case "json":
		text, err = plan.JSON()
	default:
		return plan.Table(env.out, o.output == "wide")
	}
	if err != nil {
		return err
	}
	_, err = env.out.Write(text)
	return err
}
