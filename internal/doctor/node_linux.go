package doctor

import (
	"encoding/json"
	"fmt"

	"github.com/flex2csi/flex2csi/internal/bridgestatus"
	"github.com/flex2csi/flex2csi/internal/daemon"
	"github.com/flex2csi/flex2csi/internal/wire"
)

// nodeChecks are the checks of the node itself.
func (p *probe) nodeChecks() []check {
	return []check{
		{"kubelet", p.checkKubelet},
		{"drivers", p.checkDrivers},
		{"configuration", p.checkConfiguration},
		{"daemon", p.checkDaemon},
		{"csi", p.checkCSI},
		{"propagation", p.checkPropagation},
		{"mounts", p.checkMounts},
		{"pods", p.checkPods},
	}
}

func (p *probe) askDaemon() (*daemonStatus, error) {
	document, err := wire.Ask(p.life, p.Socket, wire.KindStatus, p.Timeout/2)
	if wire.IsAbsent(err) {
		files, broken := daemon.FromFiles(p.StateDir)
		if broken != nil {
			files = bridgestatus.New(bridgestatus.SourceStateDir)
		}
		return &daemonStatus{BridgeStatus: files, absent: err}, nil
	}
	if err != nil {
		return nil, err
	}
	s := &daemonStatus{BridgeStatus: &bridgestatus.BridgeStatus{}, pid: listener(p.life, p.Socket)}
	if err := json.Unmarshal(document, s.BridgeStatus); err != nil {
		return nil, fmt.Errorf("read the status of flex2csi (%s): %w", p.Socket, err)
	}
	return s, nil
}
