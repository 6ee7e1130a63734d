//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/flex2csi/flex2csi/internal/bridge"
	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/csiclient"
	"github.com/flex2csi/flex2csi/internal/daemon"
	"github.com/flex2csi/flex2csi/internal/drivers"
	"github.com/flex2csi/flex2csi/internal/hostfile"
	"github.com/flex2csi/flex2csi/internal/install/onnode"
	"github.com/flex2csi/flex2csi/internal/mapping"
	"github.com/flex2csi/flex2csi/internal/nodemounts"
	"github.com/flex2csi/flex2csi/internal/statedir"
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/mounter"
)

// run makes the daemon and runs it.
func (o *serveOptions) run(ctx context.Context, config *bridgeconfig.Configuration, log *slog.Logger) error {
	o.kubeletDir = filepath.Clean(o.kubeletDir)
	mappers, err := mapping.Compile(config)
	if err != nil {
		return err
	}
	if err := checkSecretFiles(mappers, log); err != nil {
		return err
	}
	store, err := volstate.Open(o.stateDir)
	if err != nil {
		return err
	}
	// Operations outlive the calls that wait for them: see settle.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	b, err := o.bridge(life, store, log)
	if err != nil {
		return err
	}
	metrics := daemon.NewMetrics()
	cluster, err := o.cluster(metrics, log)
	if err != nil {
		return err
	}
	if cluster != nil {
		b.Attachments, b.Notify, b.PVState = cluster.attachments.List, cluster.Notify, cluster.PVState
	}
	b.Drivers.Choose = mappers.Choose
	var clients []*csiclient.Client
	var views []daemon.ConfiguredDriver
	for i := range config.Drivers {
		d := &config.Drivers[i]
		client := drivers.Client(d, o.kubeletDir)
		client.Observer, client.Log = metrics, log
		clients = append(clients, client)
		views = append(views, daemon.ConfiguredDriver{FlexDriver: d.FlexDriver, CSIDriver: d.CSIDriver, Connections: client.Connections, Reach: client.Reach})
		b.Drivers.All = append(b.Drivers.All, cluster.driver(d, mappers[i], client))
	}
	removed := &drivers.Removed{KubeletDir: o.kubeletDir, Attacher: cluster.attacher(), Observer: metrics, Log: log}
	b.Removed = removed.Driver
	leaveCluster := cluster.run(life) // operations go on with it until the end
	err = daemon.Run(ctx, daemon.Options{
		Bridge: b, Store: store, PendingUnmounts: statedir.PendingUnmounts(o.stateDir), StateDir: o.stateDir, Socket: o.socket, Drivers: views, Metrics: metrics, Cluster: cluster.status,
		HTTPEndpoint: o.httpEndpoint, MetricsPath: o.metricsPath, Drain: o.drain, Interval: o.interval, Log: log,
		Background: cluster.tell(b, o.stateDir, log),
	})
	end()
	leaveCluster()
	for _, c := range clients {
		err = errors.Join(err, c.Close())
	}
	return errors.Join(err, removed.Close(), settle(b, store, log), o.leave(log))
}

// leave removes the daemon's files, if flex2csi was uninstalled from the node.
func (o *serveOptions) leave(log *slog.Logger) error {
	left, err := onnode.Leave(o.stateDir, o.socket)
	if left && err == nil {
		log.Info("uninstalled: removed the records and the socket, with their directories")
	}
	return err
}

// settleWait is how long operations may take to end when their RPCs are canceled.
const settleWait = 5 * time.Second

// settle unlocks the records for the next process if no operation is left that could
// write one. Otherwise they are unlocked at the end of this process.
func settle(b *bridge.Bridge, store *volstate.Store, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(context.Background(), settleWait)
	defer cancel()
	if err := b.Settle(ctx); err != nil {
		log.Warn("ending in the middle of it; the records say how far it is", "error", err)
		runtime.KeepAlive(store) // the lock ends with the process, and not before
		return nil
	}
	return store.Unlock()
}

// driver makes a driver, with a cluster if there is one.
func (c *nodeCluster) driver(d *bridgeconfig.Driver, m *mapping.Mapper, s bridge.Service) *bridge.FlexDriver {
	if c == nil {
		return drivers.New(d, m, s, nil, nil)
	}
	return drivers.New(d, m, s, c, c.attachments)
}

// attacher returns the attacher of a cluster, or none.
func (c *nodeCluster) attacher() bridge.Attacher {
	if c == nil {
		return nil
	}
	return c.attachments
}

// bridge returns a bridge without drivers.
func (o *serveOptions) bridge(life context.Context, store *volstate.Store, log *slog.Logger) (*bridge.Bridge, error) {
	boot, err := bridge.BootID(o.bootIDFile)
	if err != nil {
		return nil, fmt.Errorf("tell this boot from others (--boot-id-file): %w", err)
	}
	return &bridge.Bridge{
		Context:         life,
		Mounts:          &nodemounts.Mounts{Mounter: mounter.Mounter{Log: log}, KubeletDir: o.kubeletDir},
		State:           store,
		PendingUnmounts: statedir.PendingUnmounts(o.stateDir),
		KubeletDir:      o.kubeletDir,
		NodeName:        o.nodeName,
		BootID:          boot,
		Measure:         o.httpEndpoint != "",
		Grace:           o.grace,
		Log:             log,
	}, nil
}

// checkSecretFiles refuses files that other users could have read or changed. A missing
// file may appear later: files are read and checked for each call.
func checkSecretFiles(mappers mapping.Mappers, log *slog.Logger) error {
	for _, m := range mappers {
		for _, path := range m.SecretFiles() {
			info, err := os.Stat(path)
			if err != nil {
				log.Warn("a file of secrets cannot be read; calls that need it will fail", "file", path, "error", err)
				continue
			}
			if err := hostfile.CheckTrusted(info, hostfile.MayNothing); err != nil {
				return fmt.Errorf("the file of secrets %s %w", path, err)
			}
		}
	}
	return nil
}
