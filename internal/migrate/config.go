package migrate

import (
	"context"
	"fmt"

	"github.com/flex2csi/flex2csi/internal/objects"
)

const (
	// daemonSet and its volume are those of the manifests (install/base).
	daemonSet    = "flex2csi-node"
	configVolume = "config"
	configKey    = "config.yaml"
)

// InstalledConfig is the configuration that the daemons of the nodes run with:
// the ConfigMap that their DaemonSet names. What is migrated by another one
// would not be what the bridge has mounted.
func InstalledConfig(ctx context.Context, c *objects.Client, namespace string) (text, from string, err error) {
	set, err := objects.DaemonSets().Get(ctx, c, namespace, daemonSet)
	if err != nil {
		return "", "", err
	}
	if set == nil {
		return "", "", fmt.Errorf("there is no DaemonSet %s/%s: give the configuration with --config, or where flex2csi is with --flex2csi-namespace", namespace, daemonSet)
	}
	for _, volume := range set.Spec.Template.Spec.Volumes {
		if volume.Name != configVolume || volume.ConfigMap == nil {
			continue
		}
		name := volume.ConfigMap.Name
		o, err := objects.ConfigMaps().Get(ctx, c, namespace, name)
		if err != nil {
			return "", "", err
		}
		if o != nil && o.Data[configKey] != "" {
			return o.Data[configKey], "ConfigMap " + namespace + "/" + name, nil
		}
		return "", "", fmt.Errorf("ConfigMap %s/%s has no %s: give the configuration with --config", namespace, name, configKey)
	}
	return "", "", fmt.Errorf("DaemonSet %s/%s has no volume %q with a ConfigMap: give the configuration with --config", namespace, daemonSet, configVolume)
}
