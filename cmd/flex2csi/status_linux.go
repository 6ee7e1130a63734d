package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/flex2csi/flex2csi/internal/bridgestatus"
	"github.com/flex2csi/flex2csi/internal/daemon"
	"github.com/flex2csi/flex2csi/internal/wire"
)

// get asks the daemon, or reads its files if there is none.
func (o *statusOptions) get(ctx context.Context, env environment) (*bridgestatus.BridgeStatus, error) {
	document, err := wire.Ask(ctx, o.socket, wire.KindStatus, o.timeout)
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
