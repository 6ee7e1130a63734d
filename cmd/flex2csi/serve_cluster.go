//go:build linux

package main

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/flex2csi/flex2csi/internal/bridge"
	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/bridgestatus"
	"github.com/flex2csi/flex2csi/internal/daemon"
	"github.com/flex2csi/flex2csi/internal/kube"
	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/internal/statedir"
	"github.com/flex2csi/flex2csi/internal/version"
)

// requireCluster refuses fields of the configuration that need the API server without
// access to it.
func (a *apiAccess) requireCluster(c *bridgeconfig.Configuration) error {
	if fields := c.WantsCluster(); len(fields) > 0 && !a.given() {
		return fmt.Errorf("the configuration needs access to the API server (%s): give --in-cluster or --kubeconfig", strings.Join(fields, ", "))
	}
	return nil
}

// nodeCluster is the cluster as a node sees it; nil: no access.
type nodeCluster struct {
	*kube.Cluster
	attachments *kube.Attachments
}

// cluster connects a node's daemon, if the flags say so.
func (o *serveOptions) cluster(m *daemon.Metrics, log *slog.Logger) (*nodeCluster, error) {
	if !o.api.given() {
		return nil, nil //nolint:nilnil // documented
	}
	c, err := o.api.connect(kube.Options{
		Node: o.nodeName,
		// These are not names of records.
		StateFile:   filepath.Join(o.stateDir, "csidrivers"),
		VolumesFile: filepath.Join(o.stateDir, "persistentvolumes"),
		Observe: func(r kube.Request) {
			m.ObserveRequest(r.Verb, r.Resource, r.Code, r.Duration)
		},
		Log: log,
	})
	if err != nil {
		return nil, err
	}
	return &nodeCluster{c, c.Attachments(o.nodeName, objects.AttachedByNode)}, nil
}

// run keeps the informers up to date until stop is called.
func (c *nodeCluster) run(ctx context.Context) (stop func()) {
	if c == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.Run(ctx)
	}()
	return func() {
		cancel()
		<-ended
	}
}

// tell writes the report of the node's volumes, for flex2csi migrate, until flex2csi is
// uninstalled from the node.
func (c *nodeCluster) tell(b *bridge.Bridge, stateDir string, log *slog.Logger) []func(context.Context) {
	if c == nil {
		return nil
	}
	t := &bridgestatus.NodeReporter{
		Node: b.NodeName, BootID: b.BootID, Version: version.Get().Version,
		Records: b.Records, Staging: b.KubeletStaging, Kubelet: b.KubeletHas, Put: c.PutNodeVolumes, Log: log,
		FlexDrivers: b.Drivers.Names(), Stages: stagingDrivers(b.Drivers.All),
		Cordoned: func() bool {
			r, err := statedir.GetCordon(stateDir)
			return r != nil || err != nil
		},
	}
	return []func(context.Context){t.Run}
}

// stagingDrivers asks the CSI drivers whether they stage volumes. A driver that does not
// answer now may answer the next time.
func stagingDrivers(all []*bridge.FlexDriver) func(context.Context) []string {
	return func(ctx context.Context) []string {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		var stages []string
		for _, d := range all {
			if f, err := d.Service.Features(ctx); err == nil && f.Stage && !slices.Contains(stages, d.CSIDriver) {
				stages = append(stages, d.CSIDriver)
			}
		}
		slices.Sort(stages)
		return stages
	}
}

// status returns the cluster's part of the status.
func (c *nodeCluster) status() *bridgestatus.ClusterStatus {
	if c == nil {
		return nil
	}
	s := c.Status()
	return &bridgestatus.ClusterStatus{Reachable: s.Reachable, Since: bridgestatus.When(s.Since), LastError: bridgestatus.Clean(s.LastError)}
}
