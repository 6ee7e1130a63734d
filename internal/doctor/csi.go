//go:build linux

package doctor

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/csiclient"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/drivers"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// checkCSI asks the CSI drivers of the configuration for their names and capabilities,
// and checks that all registration sockets answer.
func (p *probe) checkCSI(ctx context.Context, n *notes) {
	for _, r := range csiclient.Registrars(ctx, p.at(p.kubeletDir())) {
		if r.Err != nil {
			n.add(registrationDead, r.Socket, "no process answers at the registration socket %s", r.Socket).evidence(r.Err.Error())
		}
	}
	config, err := p.config()
	if err != nil {
		return // checkConfiguration says why
	}
	var asked sync.WaitGroup
	for i := range config.Drivers {
		asked.Go(func() { p.checkCSIDriver(ctx, n, &config.Drivers[i]) })
	}
	asked.Wait()
}

func (p *probe) checkCSIDriver(ctx context.Context, n *notes, d *bridgeconfig.Driver) {
	client := drivers.Client(d, p.at(p.kubeletDir()))
	client.Node = p.seen(client.Node)
	controller := client.Controller
	client.Controller = nil // one after the other: each may be unavailable
	defer client.Close()
	f, err := client.Features(ctx)
	if err != nil {
		n.add(csiKind(err), d.CSIDriver, "%s", said(err)).evidence("the driver of " + d.FlexDriver + p.wrongPlace(d))
		return
	}
	e := n.add(csiFine, d.CSIDriver, "CSI driver %s %s answers", d.CSIDriver, f.Version)
	e.evidence("calls this node "+f.NodeID, "node service: "+nodeFeatures(f))
	if controller == nil {
		if f.Controller {
			e.evidence("has a controller service, which is not configured to be reached from this node (controllerEndpoint)")
		}
		return
	}
	client.Controller = p.seen(controller)
	f, err = client.Features(ctx)
	if err != nil {
		n.add(csiKind(err), d.CSIDriver, "the controller service: %s", said(err))
		return
	}
	e.evidence(fmt.Sprintf("controller service: attaches %v, expands %v", f.Attach, f.ControllerExpand))
	if f.Attach && d.Attach == bridgeconfig.AttachNone {
		n.add(csiNoAttach, d.CSIDriver, "CSI driver %s has PUBLISH_UNPUBLISH_VOLUME, and attach: None is configured", d.CSIDriver)
	}
	if !f.Attach && d.Attach == bridgeconfig.AttachController {
		n.add(csiNoAttach, d.CSIDriver, "attach: Controller is configured, and CSI driver %s has no PUBLISH_UNPUBLISH_VOLUME", d.CSIDriver).advice("Set attach: None, or leave it to Auto.")
	}
}

// seen returns an endpoint as seen by this process.
func (p *probe) seen(e csiclient.Endpoint) csiclient.Endpoint {
	return func(ctx context.Context) (string, error) {
		path, err := e(ctx)
		if view := p.at(""); err == nil && !strings.HasPrefix(path, view) {
			path = view + path
		}
		return path, err
	}
}

func (p *probe) wrongPlace(d *bridgeconfig.Driver) string {
	if d.Endpoint != "" {
		return ", at the endpoint " + d.Endpoint
	}
	return ", looked for below " + filepath.Join(p.kubeletDir(), "plugins_registry")
}

// said returns the error without the prefix of an RPC that was not answered.
func said(err error) string {
	if e, ok := errors.AsType[*csivol.RPCError](err); ok && e.Method == "connect" {
		return e.Message
	}
	return err.Error()
}

// csiKind returns the kind of finding for an error of a driver.
func csiKind(err error) *Kind {
	e, ok := errors.AsType[*csivol.RPCError](err)
	switch {
	case !ok:
		return csiNoAnswer
	case strings.Contains(e.Message, "no driver of this name is registered"):
		return csiNotRegistered
	case e.Method == "GetPluginInfo" && e.Code == flex.CodeFailedPrecondition:
		return csiWrongName
	case e.Method == "Probe":
		return csiNotReady
	}
	return csiNoAnswer
}

func nodeFeatures(f csivol.Features) string {
	var can []string
	for _, c := range []struct {
		name string
		has  bool
	}{{"stages", f.Stage}, {"expands", f.NodeExpand}, {"tells usage", f.Stats}, {"sets groups", f.MountGroup}} {
		if c.has {
			can = append(can, c.name)
		}
	}
	if len(can) == 0 {
		return "publishes only"
	}
	return "publishes, " + strings.Join(can, ", ")
}
