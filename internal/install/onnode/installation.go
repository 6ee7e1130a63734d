package onnode

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"

	"github.com/flex2csi/flex2csi/internal/hostfile"
)

const (
	// apiVersion is the only version of the format so far.
	apiVersion = "flex2csi.io/v1alpha1"
	// kind names the format.
	kind = "Installation"

	// fileName is no name of a record: those end in .json.
	fileName = "installed"
	// maxSize is room for thousands of drivers.
	maxSize = 1 << 20
)

// An Installation is what Install writes to the state directory. flex2csi ready reads
// it to probe the drivers, and flex2csi uninstall to remove them.
type Installation struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Version is that of the flex2csi that installed.
	Version string `json:"version"`
	// HostRoot is the path of the node's / in the pod; empty: /.
	HostRoot string `json:"hostRoot,omitempty"`
	// PluginDir and KubeletDir are as the kubelet calls them.
	PluginDir  string `json:"pluginDir"`
	KubeletDir string `json:"kubeletDir"`
	// Drivers are those of the configuration, Former those of earlier ones.
	Drivers []installedDriver `json:"drivers"`
	Former  []installedDriver `json:"former,omitempty"`
}

// An installedDriver is a driver that is installed.
type installedDriver struct {
	// Driver is vendor/name.
	Driver string `json:"driver"`
	// Executable is where it is, HostRoot included.
	Executable string `json:"executable"`
}

// driver finds one of the configuration.
func (i *Installation) driver(name string) (installedDriver, bool) {
	for _, d := range i.Drivers {
		if d.Driver == name {
			return d, true
		}
	}
	return installedDriver{}, false
}

// Path is the file in a state directory.
func Path(stateDir string) string { return filepath.Join(stateDir, fileName) }

// Read reads the Installation.
func Read(stateDir string) (*Installation, error) {
	path := Path(stateDir)
	// What it names is run as root.
	data, err := hostfile.ReadTrusted(path, hostfile.MayRead, maxSize)
	if err != nil {
		return nil, fmt.Errorf("read what is installed (%s): %w", path, err)
	}
	var i Installation
	if err := json.Unmarshal(data, &i); err != nil {
		return nil, fmt.Errorf("read what is installed (%s): %w", path, err)
	}
	if i.APIVersion != apiVersion || i.Kind != kind {
		return nil, fmt.Errorf("read what is installed (%s): it is a %s of %s, but this program knows %s of %s", path, i.Kind, i.APIVersion, kind, apiVersion)
	}
	return &i, nil
}

// Write replaces the Installation in one step.
func (i *Installation) Write(stateDir string) error {
	data, err := json.MarshalIndent(i, "", "  ")
	if err != nil {
		return fmt.Errorf("write what is installed: %w", err)
	}
	if err := os.MkdirAll(stateDir, 0o700); err != nil {
		return fmt.Errorf("make the state directory: %w", err)
	}
	if err := replace(Path(stateDir), append(data, '\n')); err != nil {
		return fmt.Errorf("write what is installed: %w", err)
	}
	return nil
}

// replace gives the file its mode, whatever that of the one before was.
func replace(path string, data []byte) error {
	f, err := renameio.NewPendingFile(path, renameio.WithTempDir(filepath.Dir(path)), renameio.WithStaticPermissions(0o600))
	if err != nil {
		return err
	}
	defer f.Cleanup() //nolint:errcheck // of no consequence
	if _, err := f.Write(data); err != nil {
		return err
	}
	return f.CloseAtomicallyReplace()
}
