// Package daemon runs flex2csi serve, and other programs, as processes of tests,
// benchmarks and the demo.
package daemon

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/flex2csi/flex2csi/internal/wire"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// Patience is how long a program may take until it listens, which on a busy machine is
// far longer than usual.
const Patience = time.Minute

// A Daemon is flex2csi serve on one node.
type Daemon struct {
	// Dir has all that is the daemon's own. It is short: the path of a socket has at
	// most 107 bytes.
	Dir string
	// KubeletDir is the kubelet's --root-dir.
	KubeletDir string
	NodeName   string
	Drivers    []Driver
}

// A Driver is one of the BridgeConfiguration.
type Driver struct {
	FlexDriver, CSIDriver string
	// Endpoint and ControllerEndpoint are sockets; empty: none is configured.
	Endpoint, ControllerEndpoint string
	// More are further lines of YAML.
	More []string
}

// Socket is where the daemon listens.
func (d *Daemon) Socket() string { return filepath.Join(d.Dir, "run/flex2csi.sock") }

// StateDir is where its records are.
func (d *Daemon) StateDir() string { return filepath.Join(d.Dir, "state") }

// Configure writes the configuration.
func (d *Daemon) Configure() error {
	if err := os.MkdirAll(d.Dir, 0o700); err != nil {
		return err
	}
	return os.WriteFile(d.config(), []byte(d.yaml()), 0o600)
}

func (d *Daemon) config() string { return filepath.Join(d.Dir, "config.yaml") }

func (d *Daemon) yaml() string {
	var b strings.Builder
	b.WriteString("apiVersion: flex2csi.io/v1alpha1\nkind: BridgeConfiguration\ndrivers:\n")
	for _, driver := range d.Drivers {
		fmt.Fprintf(&b, "- flexDriver: %s\n  csiDriver: %s\n", driver.FlexDriver, driver.CSIDriver)
		if driver.Endpoint != "" {
			fmt.Fprintf(&b, "  endpoint: unix://%s\n", driver.Endpoint)
		}
		if driver.ControllerEndpoint != "" {
			fmt.Fprintf(&b, "  controllerEndpoint: unix://%s\n", driver.ControllerEndpoint)
		}
		for _, line := range driver.More {
			fmt.Fprintf(&b, "  %s\n", line)
		}
	}
	return b.String()
}

// Args are those of flex2csi, with more flags.
func (d *Daemon) Args(more ...string) []string {
	return append([]string{
		"serve", "--config", d.config(), "--socket", d.Socket(), "--state-dir", d.StateDir(),
		"--kubelet-dir", d.KubeletDir, "--node-name", d.NodeName,
	}, more...)
}

// Call makes a callout, as flexdriver does: it waits for an absent daemon.
func (d *Daemon) Call(ctx context.Context, flexDriver string, timeout time.Duration, args ...string) (flex.DriverStatus, error) {
	for deadline := time.Now().Add(Patience); ; time.Sleep(20 * time.Millisecond) {
		response, err := wire.Call(ctx, d.Socket(), wire.NewRequest(flexDriver, args, timeout))
		if err == nil {
			return response.Status, nil
		}
		if flex.CodeOf(err) != flex.CodeUnavailable || time.Now().After(deadline) {
			return flex.DriverStatus{}, fmt.Errorf("%s: %w", args[0], err)
		}
	}
}
