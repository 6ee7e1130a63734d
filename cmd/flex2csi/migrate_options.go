package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/driverconfig"
	"github.com/flex2csi/flex2csi/internal/kube"
	"github.com/flex2csi/flex2csi/internal/mapping"
	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// selectOptions select volumes.
type selectOptions struct {
	namespaceOptions
	selection migrate.Selection
}

func (o *selectOptions) add(c *cobra.Command, api *apiAccess) {
	set := c.Flags()
	set.StringArrayVar(&o.selection.Claims, "claim", nil, "the volume of this claim, `namespace/name`; may be repeated")
	o.namespaceOptions.add(c, api)
	set.StringVarP(&o.selection.Selector, "selector", "l", "", "volumes with matching labels, a `selector` as of kubectl")
	set.StringVar(&o.selection.ClaimSelector, "claim-selector", "", "volumes of claims with matching labels, a `selector`")
	set.StringArrayVar(&o.selection.Drivers, "driver", nil, "volumes of this FlexVolume driver, `vendor/name`; may be repeated")
	completes(c, "claim", api.names(flexVolumeClaims()))
	completes(c, "driver", api.names(flexDrivers()))
	c.ValidArgsFunction = api.names(flexVolumeNames())
	set.BoolVar(&o.selection.All, "all", false, "all FlexVolumes, also those without a claim")
}

// complete checks the flags.
func (o *selectOptions) complete(names []string) error {
	o.selection.Names, o.selection.Namespaces = names, o.namespaces
	if o.selection.Empty() {
		return usagef("which volumes? Name some, or choose them with --claim, --namespace, --selector, --claim-selector or --driver; --all are all FlexVolumes")
	}
	if o.selection.All && len(names)+len(o.selection.Claims) > 0 {
		return usagef("--all are all FlexVolumes: name none besides")
	}
	for _, driver := range o.selection.Drivers {
		if _, err := driverconfig.ParseDriverName(driver); err != nil {
			return usagef("--driver: %v", err)
		}
	}
	for flag, selector := range map[string]string{"selector": o.selection.Selector, "claim-selector": o.selection.ClaimSelector} {
		if _, err := labels.Parse(selector); err != nil {
			return usagef("--%s %s: want one such as app=shop,tier!=cache: %v", flag, selector, err)
		}
	}
	for _, claim := range o.selection.Claims {
		if _, _, err := slashed("claim", claim); err != nil {
			return err
		}
	}
	return nil
}

// plannerOptions are the flags for a planner.
type plannerOptions struct {
	api     apiAccess
	home    ownNamespace
	config  string
	secrets []string
}

func (o *plannerOptions) add(c *cobra.Command) {
	set := c.Flags()
	set.StringVar(&o.config, "config", "", "BridgeConfiguration, a `file`; - is standard input (default: that of the daemons in the cluster)")
	set.StringArrayVar(&o.secrets, "secret", nil, "Secret for a stage that has its secrets in a file on the nodes, `vendor/name:stage=namespace/name`")
	o.home.add(c, &o.api)
	o.api.add(c)
}

// planner connects, and makes a planner. resume and rollback need no configuration if
// the journal has the new volume.
func (o *plannerOptions) planner(ctx context.Context, env environment, needsConfig bool) (*kube.Cluster, *migrate.Planner, error) {
	given, err := givenSecrets(o.secrets)
	if err != nil {
		return nil, nil, err
	}
	cluster, err := o.api.connect(kube.Options{UserAgent: migrateAgent, QPS: 200, Burst: 400})
	if err != nil {
		return nil, nil, err
	}
	config, err := migrateConfig(ctx, o.config, cluster.Objects(), o.home, env)
	if err != nil {
		if needsConfig || o.config != "" || ctx.Err() != nil {
			return nil, nil, err
		}
		fmt.Fprintf(env.err, "note: %v; volumes for which that is needed still are left\n", err)
		config = &bridgeconfig.Configuration{}
	}
	return cluster, &migrate.Planner{Client: cluster.Objects(), Config: config, Secrets: given, Namespace: string(o.home), Server: cluster.Server(), Now: time.Now}, nil
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
			return nil, usagef("--secret %s: want vendor/name:stage=namespace/name", arg)
		}
		given[stage] = csivol.SecretRef{Namespace: namespace, Name: name}
	}
	return given, nil
}

// migrateAgent names flex2csi migrate to the API server.
const migrateAgent = "flex2csi-migrate"

// migrateConfig returns the configuration of a file, or that of the daemons.
func migrateConfig(ctx context.Context, path string, client *objects.Client, home ownNamespace, env environment) (*bridgeconfig.Configuration, error) {
	if path != "" {
		return loadConfig(bridgeconfig.Loader{}, path, env)
	}
	text, from, err := migrate.InstalledConfig(ctx, client, string(home))
	if err != nil {
		return nil, fmt.Errorf("find the configuration: %w", err)
	}
	c, err := bridgeconfig.Loader{}.Decode([]byte(text), mapping.Check)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", from, err)
	}
	fmt.Fprintf(env.err, "note: the configuration is that of the daemons, %s\n", from)
	return c, nil
}

// slashed parses namespace/name.
func slashed(flag, value string) (namespace, name string, err error) {
	namespace, name, ok := strings.Cut(value, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return "", "", usagef("--%s %s: want namespace/name", flag, value)
	}
	return namespace, name, nil
}
