package nodeinstall

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

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

// Probe runs init of the drivers with these names as the kubelet does.
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
			_, err := install.TryInit(ctx, all[at].Executable, timeLeft(ctx))
			probed[n] = Probed{Driver: name, Shown: host.Shown(all[at].Executable), Err: err}
		})
	}
	probes.Wait()
	return probed
}

// timeLeft is until the deadline, which there has to be.
func timeLeft(ctx context.Context) time.Duration {
	const patience = 10 * time.Second
	if deadline, ok := ctx.Deadline(); ok {
		return time.Until(deadline)
	}
	return patience
}
