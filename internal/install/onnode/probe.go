package onnode

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/flex2csi/flex2csi/internal/driverconfig"
	"github.com/flex2csi/flex2csi/internal/install"
	"github.com/flex2csi/flex2csi/internal/kubelet"
)

// A Probed is the result of init of an installed driver.
type Probed struct {
	Driver string
	// Shown is its executable, as the node calls it.
	Shown string
	// Err is why it does not work; nil: it does.
	Err error
}

// errNotInstalled: the daemon serves a driver that no kubelet finds.
var errNotInstalled = errors.New("is not installed")

// errOverwritten: the vendor's driver mounts what the daemon believes to mount.
var errOverwritten = errors.New("is not flexdriver: another program was put in its place, as vendors' installers do when they start; stop the installer (doctor --on=cluster names DaemonSets), then install again: kubectl -n flex2csi rollout restart ds/flex2csi-node")

// Probe runs init of the drivers with these names as the kubelet does, unless another
// program is in their place, and compares the answer with their configuration.
func (i *Installation) Probe(ctx context.Context, names []string) []Probed {
	host := kubelet.Host{Root: i.HostRoot}
	all := slices.Concat(i.Drivers, i.Former)
	probed := make([]Probed, len(names))
	var probes sync.WaitGroup
	for n, name := range names {
		at := slices.IndexFunc(all, func(d installedDriver) bool { return d.Driver == name })
		if at < 0 {
			probed[n] = Probed{Driver: name, Err: errNotInstalled}
			continue
		}
		probes.Go(func() {
			probed[n] = Probed{Driver: name, Shown: host.Shown(all[at].Executable), Err: all[at].probe(ctx)}
		})
	}
	probes.Wait()
	return probed
}

func (d installedDriver) probe(ctx context.Context) error {
	ours, err := install.IsOurs(d.Executable)
	if err != nil {
		return err
	}
	if !ours {
		return errOverwritten
	}
	c, err := driverconfig.Load(filepath.Join(filepath.Dir(d.Executable), driverconfig.FileName))
	if err != nil {
		return err
	}
	return install.TryInit(ctx, d.Executable, timeLeft(ctx), &c.Capabilities)
}

// timeLeft is until the deadline, which there has to be.
func timeLeft(ctx context.Context) time.Duration {
	const patience = 10 * time.Second
	if deadline, ok := ctx.Deadline(); ok {
		return time.Until(deadline)
	}
	return patience
}
