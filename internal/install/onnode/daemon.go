package onnode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/flex2csi/flex2csi/internal/bridgestatus"
	"github.com/flex2csi/flex2csi/internal/daemon"
	"github.com/flex2csi/flex2csi/internal/statedir"
	"github.com/flex2csi/flex2csi/internal/wire"
)

// The daemon is the one that serves the node, or its files if there is none.

// answerTime is how long it may take to answer a question.
const answerTime = 10 * time.Second

func (n Node) ask(ctx context.Context, kind string, document any) error {
	data, err := wire.Ask(ctx, n.Socket, kind, answerTime)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, document); err != nil {
		return fmt.Errorf("read what flex2csi (%s) answers to %s: %w", n.Socket, kind, err)
	}
	return nil
}

// cordonDaemon has the daemon set up no new volume. running reports whether it runs.
func (n Node) cordonDaemon(ctx context.Context) (running bool, err error) {
	var r bridgestatus.Readiness
	err = n.ask(ctx, wire.KindCordon, &r)
	if !wire.IsAbsent(err) {
		return true, err
	}
	if _, err = statedir.BeginCordon(n.StateDir); errors.Is(err, fs.ErrNotExist) {
		err = nil // there is no such directory, and so there are no records
	}
	return false, err
}

// uncordonDaemon ends that. The daemon may have ended, or been started, meanwhile.
func (n Node) uncordonDaemon(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx) // also after an interrupt
	var r bridgestatus.Readiness
	err := n.ask(ctx, wire.KindUncordon, &r)
	if wire.IsAbsent(err) {
		err = statedir.EndCordon(n.StateDir)
	}
	return err
}

func (n Node) settingUp(ctx context.Context) (int, error) {
	var r bridgestatus.Readiness
	err := n.ask(ctx, wire.KindReady, &r)
	if wire.IsAbsent(err) {
		return 0, nil
	}
	return r.SettingUp, err
}

func (n Node) status(ctx context.Context) (*bridgestatus.BridgeStatus, error) {
	var s bridgestatus.BridgeStatus
	err := n.ask(ctx, wire.KindStatus, &s)
	if !wire.IsAbsent(err) {
		return &s, err
	}
	files, err := daemon.FromFiles(n.StateDir)
	if errors.Is(err, fs.ErrNotExist) {
		return bridgestatus.New(bridgestatus.SourceStateDir), nil
	}
	return files, err
}
