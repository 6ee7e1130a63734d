package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/flex2csi/flex2csi/internal/driverconfig"
	"github.com/flex2csi/flex2csi/internal/report"
	"github.com/flex2csi/flex2csi/internal/statedir"
)

// statusOptions are the flags of status.
type statusOptions struct {
	socket, stateDir, by string
	timeout              time.Duration
	attachments          bool
	namespaces           namespaceOptions
	watch                watchOption
	api                  apiAccess
	format               outputFormat
}

func newStatus() *cobra.Command {
	o := statusOptions{by: "volume", format: outputFormat{formats: []string{table, wide, asJSON, asYAML, asName}}}
	c := &cobra.Command{
		Use:   "status [NAME...]",
		Short: "Show volumes, drivers and calls that are under way on this node",
		Long: `Show the volumes of this node, the CSI drivers, and calls that are under way. The
daemon is asked; if there is none, its files are read, which have neither drivers
nor calls.

With --attachments show the VolumeAttachments of flex2csi in the whole cluster
instead, and which of them leak; this asks the API server.

A NAME is that of a PersistentVolume, a volume handle, a driver, a pod (NAME,
NAMESPACE/NAME or UID) or a namespace. With NAMEs only what they select is shown;
the exit status is 1 if they select nothing.`,
		RunE: o.run,
	}
	set := c.Flags()
	set.StringVar(&o.socket, "socket", driverconfig.DefaultSocket, "unix socket of the daemon")
	set.StringVar(&o.stateDir, "state-dir", statedir.DefaultStateDir, "`directory` of the records, if there is no daemon")
	addChoice(c, &o.by, []string{"volume", "pod"}, "by", "", "`what` has a row in the table")
	o.namespaces.add(c, &o.api)
	o.format.add(c)
	o.watch.add(c, 2*time.Second)
	set.DurationVar(&o.timeout, "timeout", 10*time.Second, "how long the daemon may take to answer; with --attachments, the API server in all")
	set.BoolVar(&o.attachments, "attachments", false, "show the VolumeAttachments of the cluster, which the connection flags choose")
	o.api.add(c)
	c.ValidArgsFunction = o.api.names(flexVolumeNames())
	return c
}

// run is flex2csi status.
func (o *statusOptions) run(c *cobra.Command, names []string) error {
	if o.timeout <= 0 {
		return usagef("--timeout %v: want more than 0, such as 30s", o.timeout)
	}
	ctx, stop := untilInterrupted(c)
	defer stop()
	return o.watch.show(ctx, streams(c), func(ctx context.Context, env environment) error { return o.status(ctx, names, env) })
}

// status shows the state of the bridge on this node.
func (o *statusOptions) status(ctx context.Context, names []string, env environment) error {
	if o.attachments {
		return o.showAttachments(ctx, names, env)
	}
	s, err := o.get(ctx, env)
	if err != nil {
		return err
	}
	shown := s.Filter(names).Filter(o.namespaces.namespaces)
	if len(names) > 0 && len(shown.Volumes)+len(shown.Drivers)+len(shown.Failures) == 0 {
		return fmt.Errorf("nothing on this node is called %s (there are %d volumes)", strings.Join(names, " or "), len(s.Volumes))
	}
	return o.format.print(env.out, shown, func(view report.View) *report.Report { return shown.Show(view, o.by == "pod") })
}
