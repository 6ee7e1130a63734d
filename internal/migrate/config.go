package migrate

import (
	"context"
	"fmt"
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
func InstalledConfig(ctx context.Context, r Reader) (text, from string, err error) {
	w := newWorld(r)
	set, err := w.get(ctx, daemonSets(), Namespace, daemonSet)
	if err != nil {
		return "", "", err
	}
	if set == nil {
		return "", "", fmt.Errorf("there is no DaemonSet %s/%s: give the configuration with --config", Namespace, daemonSet)
	}
	for _, volume := range set.list("spec", "template", "spec", "volumes") {
		name := volume.text("configMap", "name")
		if volume.text("name") != configVolume || name == "" {
			continue
		}
		o, err := w.get(ctx, configMaps(), Namespace, name)
		if err != nil {
			return "", "", err
		}
		if text := o.configText(); text != "" {
			return text, "ConfigMap " + Namespace + "/" + name, nil
		}
		return "", "", fmt.Errorf("ConfigMap %s/%s has no %s: give the configuration with --config", Namespace, name, configKey)
	}
	return "", "", fmt.Errorf("DaemonSet %s/%s has no volume %q with a ConfigMap: give the configuration with --config", Namespace, daemonSet, configVolume)
}

func (o *Object) configText() string {
	if o == nil {
		return ""
	}
	return o.text("data", configKey)
}
