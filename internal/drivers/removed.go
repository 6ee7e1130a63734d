package drivers

import (
	"errors"
	"log/slog"
	"sync"

	"github.com/flex2csi/flex2csi/internal/bridge"
	"github.com/flex2csi/flex2csi/internal/csiclient"
	"github.com/flex2csi/flex2csi/internal/csivol"
)

// Removed makes drivers from records, for the tear-down of volumes with a driver that
// the configuration no longer has. They have the default timeouts.
type Removed struct {
	KubeletDir string
	Attacher   bridge.Attacher // nil: none
	Observer   csiclient.Observer
	Log        *slog.Logger

	mu   sync.Mutex
	made map[removed]*bridge.FlexDriver // guarded by mu
}

type removed struct {
	flexDriver, csiDriver string
	at                    csivol.Endpoints
}

// Driver returns a driver, the same one for the same arguments.
func (r *Removed) Driver(flexDriver, csiDriver string, at csivol.Endpoints) *bridge.FlexDriver {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := removed{flexDriver, csiDriver, at}
	if d, ok := r.made[key]; ok {
		return d
	}
	client := clientAt(csiDriver, at, r.KubeletDir)
	client.Observer, client.Log = r.Observer, r.Log
	d := &bridge.FlexDriver{Name: flexDriver, CSIDriver: csiDriver, Service: client, Endpoints: &at, Attacher: r.Attacher}
	if r.made == nil {
		r.made = map[removed]*bridge.FlexDriver{}
	}
	r.made[key] = d
	return d
}

// Close closes their connections.
func (r *Removed) Close() (err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range r.made {
		if client, ok := d.Service.(*csiclient.Client); ok {
			err = errors.Join(err, client.Close())
		}
	}
	return err
}
