package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/flex2csi/flex2csi/internal/bridgestatus"
	"github.com/flex2csi/flex2csi/internal/daemon"
	"github.com/flex2csi/flex2csi/internal/tombstone"
	"github.com/flex2csi/flex2csi/internal/wire"
)

// statusOptions are the flags of status.
type statusOptions struct {
	socket, stateDir, by, output string
	timeout                      time.Duration
	attachments                  bool
	kubeconfig                   string
}

func (o *statusOptions) flags(env environment) *pflag.FlagSet {
	set := flags("status", `Show the volumes of this node, the CSI drivers, and what is under way. The daemon
is asked; if there is none, its files are read, which know nothing of drivers and
of what is under way.

With --attachments show the VolumeAttachments of flex2csi in the whole cluster
instead, and which of them leak; this asks the API server.

A NAME is that of a PersistentVolume, a volume handle, a driver, a pod (NAME,
NAMESPACE/NAME or UID) or a namespace. With NAMEs only what they stand for is
shown; the exit status is 1 if that is nothing.`, env)
	set.SetInterspersed(true)
	set.StringVar(&o.socket, "socket", wire.DefaultSocket, "unix socket of the daemon")
	set.StringVar(&o.stateDir, "state-dir", tombstone.DefaultStateDir, "`directory` of the records, if there is no daemon")
	set.StringVar(&o.by, "by", "volume", "what a row of the table is for: `volume or pod`")
	set.StringVarP(&o.output, "output", "o", "", "`format`: "+strings.Join(bridgestatus.Formats(), ", ")+"; empty: a table")
	set.DurationVar(&o.timeout, "timeout", 10*time.Second, "how long the daemon may take to answer; with --attachments, the API server in all")
	set.BoolVar(&o.attachments, "attachments", false, "show the VolumeAttachments of the cluster")
	set.StringVar(&o.kubeconfig, "kubeconfig", "", "with --attachments: `file` to talk to the API server with; empty: $KUBECONFIG, or the pod's own")
	return set
}

// status shows how the bridge of this node is.
func status(args []string, env environment) error {
	var o statusOptions
	set := o.flags(env)
	if err := set.Parse(args); err != nil {
		return &usageError{err}
	}
	switch {
	case o.by != "volume" && o.by != "pod":
		return usagef("--by %s: want volume or pod", o.by)
	case o.output != "" && !slices.Contains(bridgestatus.Formats(), o.output):
		return usagef("--output %s: want %s", o.output, strings.Join(bridgestatus.Formats(), ", "))
	case o.timeout <= 0:
		return usagef("--timeout %v: want a time that can pass", o.timeout)
	}
	if o.attachments {
		return o.showAttachments(set.Args(), env)
	}
	s, err := o.get(env)
	if err != nil {
		return err
	}
	shown := s.Filter(set.Args())
	if set.NArg() > 0 && len(shown.Volumes)+len(shown.Drivers)+len(shown.Failures) == 0 {
		return fmt.Errorf("nothing on this node is called %s (there are %d volumes)", strings.Join(set.Args(), " or "), len(s.Volumes))
	}
	return shown.Print(env.out, bridgestatus.Format(o.output), o.by == "pod")
}

// get asks the daemon, or reads its files if there is none.
func (o *statusOptions) get(env environment) (*bridgestatus.BridgeStatus, error) {
	document, err := wire.Ask(context.Background(), o.socket, wire.KindStatus, o.timeout)
	if wire.IsAbsent(err) {
		fmt.Fprintf(env.err, "%v\nThis is what its files in %s say:\n\n", err, o.stateDir)
		return daemon.FromFiles(o.stateDir)
	}
	if err != nil {
		return nil, err
	}
	var s bridgestatus.BridgeStatus
	if err := json.Unmarshal(document, &s); err != nil {
		return nil, fmt.Errorf("read the status of flex2csi (%s): %w", o.socket, err)
	}
	if s.APIVersion != bridgestatus.APIVersion || s.Kind != bridgestatus.Kind {
		return nil, fmt.Errorf("flex2csi (%s) answers with %s of %s, and this program knows %s of %s; bring both to one release", o.socket, s.Kind, s.APIVersion, bridgestatus.Kind, bridgestatus.APIVersion)
	}
	return &s, nil
}
