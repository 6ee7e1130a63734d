package kubelet

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	securejoin "github.com/cyphar/filepath-securejoin"
	"go.yaml.in/yaml/v3"

	"github.com/flex2csi/flex2csi/internal/hostfile"
)

// readFiles reads the configuration file and the drop-ins; later ones win
// (cmd/kubelet/app/server.go, mergeKubeletConfigurations).
func (k *Kubelet) readFiles(config, dropIns string) error {
	if config != "" {
		k.Files = append(k.Files, k.absolute(config))
	}
	if dropIns != "" {
		found, err := k.dropInFiles(k.absolute(dropIns))
		if err != nil {
			return fmt.Errorf("read the kubelet's --config-dir: %w", err)
		}
		k.Files = append(k.Files, found...)
	}
	for _, file := range k.Files {
		if err := k.readFile(file); err != nil {
			return fmt.Errorf("read the kubelet's configuration %s: %w", file, err)
		}
	}
	return nil
}

// find returns our path of a file of the kubelet. It follows links as the kubelet does.
func (k *Kubelet) find(path string) (string, error) {
	if k.View == "" {
		return path, nil
	}
	return securejoin.SecureJoin(k.View, path)
}

// dropInFiles returns the drop-ins in the kubelet's order.
func (k *Kubelet) dropInFiles(dir string) (files []string, err error) {
	here, err := k.find(dir)
	if err != nil {
		return nil, err
	}
	err = filepath.WalkDir(here, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && filepath.Ext(path) == ".conf" {
			files = append(files, filepath.Join(dir, strings.TrimPrefix(path, here)))
		}
		return err
	})
	slices.Sort(files)
	return files, err
}

const maxConfig = 1 << 20

// A Configuration has the fields of a KubeletConfiguration that we need. The type in
// k8s.io/kubelet/config would link k8s.io/component-base.
type Configuration struct {
	VolumePluginDir              string `json:"volumePluginDir" yaml:"volumePluginDir"`
	EnableControllerAttachDetach *bool  `json:"enableControllerAttachDetach" yaml:"enableControllerAttachDetach"`
}

func (k *Kubelet) readFile(path string) error {
	here, err := k.find(path)
	if err != nil {
		return err
	}
	data, err := hostfile.ReadTrusted(here, hostfile.MayChange, maxConfig)
	if err != nil {
		return err
	}
	var c Configuration
	if err := yaml.Unmarshal(data, &c); err != nil {
		return err
	}
	if c.VolumePluginDir != "" {
		k.PluginDir, k.PluginDirFrom = c.VolumePluginDir, "volumePluginDir in "+path
	}
	if c.EnableControllerAttachDetach != nil {
		k.AttachDetach, k.AttachDetachFrom = *c.EnableControllerAttachDetach, "enableControllerAttachDetach in "+path
	}
	return nil
}

// absolute resolves paths relative to the kubelet's working directory.
func (k *Kubelet) absolute(path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	dir, _ := os.Readlink(k.host.ProcFile(k.PID, "cwd")) // daemons have /
	return filepath.Join(cmp.Or(dir, "/"), path)
}
