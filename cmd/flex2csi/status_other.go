//go:build !linux

package main

import (
	"context"
	"errors"

	"github.com/flex2csi/flex2csi/internal/bridgestatus"
)

// get: the daemon is on a node.
func (*statusOptions) get(context.Context, environment) (*bridgestatus.BridgeStatus, error) {
	return nil, errors.New("this machine is no node; use --attachments, or ask the daemon of a node: kubectl -n flex2csi exec ds/flex2csi-node -- /flex2csi status")
}
