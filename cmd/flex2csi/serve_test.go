package main

import (
	"testing"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
)

func TestCheckStagingRoots(t *testing.T) {
	for root, ok := range map[string]bool{
		"": true, "/var/lib/kubelet/plugins/other": true,
		"/var/lib/kubelet": false, "/var/lib/kubelets/x": false, "/var/lib/kubelet/../x": false, "/mnt": false,
	} {
		err := checkStagingRoots(&bridgeconfig.Configuration{Drivers: []bridgeconfig.Driver{{}, {StagingRoot: root}}}, "/var/lib/kubelet")
		if (err == nil) != ok {
			t.Errorf("%q: %v", root, err)
		}
	}
}
