//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/flex2csi/flex2csi/internal/bridgestatus"
	"github.com/flex2csi/flex2csi/internal/install/onnode"
	"github.com/flex2csi/flex2csi/internal/statedir"
	"github.com/flex2csi/flex2csi/internal/wire"
)

// readyOptions are the flags of ready.
type readyOptions struct {
	socket, stateDir string
	timeout          time.Duration
	live, controller bool
}

func newReady() *cobra.Command {
	var o readyOptions
	c := &cobra.Command{
		Use:   "ready",
		Short: "Report whether FlexVolumes work on this node",
		Long: `Report whether FlexVolumes work on this node: the daemon answers calls, or waits as
a standby, and each driver that it serves is flexdriver where the kubelet finds it,
and answers init with the capabilities of its configuration. Each gets a line. The
exit status is 0 if so, and 1 if not.

A CSI driver that is unavailable is named, and does not change the exit status: the
other drivers work, and its volumes will when it is back.

In a pod the daemon of this pod is asked, which may be the standby.`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return o.ready(c.Context(), streams(c).out) },
	}
	set := c.Flags()
	set.StringVar(&o.socket, "socket", wire.DefaultSocket, "unix socket of the daemon, as serve is told it")
	set.StringVar(&o.stateDir, "state-dir", statedir.DefaultStateDir, "`directory` of the daemon's records, where install has written down the drivers")
	set.DurationVar(&o.timeout, "timeout", 4*time.Second, "how long all of it may take")
	set.BoolVar(&o.live, "live", false, "report only whether the daemon has to be restarted")
	set.BoolVar(&o.controller, "controller", false, "ask flex2csi controller, which has no drivers of the kubelet")
	return c
}

// ready is flex2csi ready.
func (o *readyOptions) ready(ctx context.Context, out io.Writer) error {
	if o.timeout <= 0 {
		return usagef("--timeout %v: want more than 0, such as 30s", o.timeout)
	}
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	r, err := o.ask(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "flex2csi %s: %s\n", r.Version, r.Message)
	if o.live {
		if !r.Live {
			return errors.New("the daemon ought to be restarted")
		}
		return nil
	}
	tellCSIDrivers(out, r.Drivers)
	err = nil
	if !r.Ready {
		err = fmt.Errorf("the daemon is not ready: %s", r.State)
	}
	if !o.controller {
		err = errors.Join(err, o.probeDrivers(ctx, out, r.Drivers))
	}
	return err
}

func (o *readyOptions) ask(ctx context.Context) (*bridgestatus.Readiness, error) {
	document, err := wire.AskOwn(ctx, o.socket, wire.KindReady, o.timeout)
	if err != nil {
		return nil, err
	}
	var r bridgestatus.Readiness
	if err := json.Unmarshal(document, &r); err != nil {
		return nil, fmt.Errorf("read how flex2csi is: %w", err)
	}
	if r.APIVersion != bridgestatus.APIVersion || r.Kind != bridgestatus.ReadinessKind {
		return nil, fmt.Errorf("flex2csi answers with %s of %s, and this program knows %s of %s; bring both to one release", r.Kind, r.APIVersion, bridgestatus.ReadinessKind, bridgestatus.APIVersion)
	}
	return &r, nil
}

// tellCSIDrivers prints the CSI drivers that cannot be reached.
func tellCSIDrivers(out io.Writer, drivers []bridgestatus.DriverStatus) {
	for _, d := range drivers {
		for _, s := range d.Services {
			switch {
			case s.Connected:
				fmt.Fprintf(out, "%s: CSI driver %s (%s) is connected\n", d.FlexDriver, d.CSIDriver, s.Name)
			case s.LastError != "":
				fmt.Fprintf(out, "%s: CSI driver %s (%s) is missing: %s\n", d.FlexDriver, d.CSIDriver, s.Name, s.LastError)
			default:
				fmt.Fprintf(out, "%s: CSI driver %s (%s) is not connected yet\n", d.FlexDriver, d.CSIDriver, s.Name)
			}
		}
	}
}

// probeDrivers runs init of the drivers that the daemon serves.
func (o *readyOptions) probeDrivers(ctx context.Context, out io.Writer, served []bridgestatus.DriverStatus) error {
	installed, err := onnode.Read(o.stateDir)
	if err != nil {
		return fmt.Errorf("no driver is known to be where the kubelet finds it: %w; flex2csi install leaves word of them", err)
	}
	var names []string
	for _, d := range served {
		if !slices.Contains(names, d.FlexDriver) {
			names = append(names, d.FlexDriver)
		}
	}
	var broken []string
	for _, p := range installed.Probe(ctx, names) {
		if p.Err != nil {
			fmt.Fprintf(out, "%s: %v\n", p.Driver, p.Err)
			broken = append(broken, p.Driver)
			continue
		}
		fmt.Fprintf(out, "%s: %s answers init\n", p.Driver, p.Shown)
	}
	if len(broken) > 0 {
		return fmt.Errorf("not where the kubelet finds them, or not working: %s", strings.Join(broken, ", "))
	}
	return nil
}
