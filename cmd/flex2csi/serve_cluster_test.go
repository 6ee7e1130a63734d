package main

import (
	"strings"
	"testing"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
)

// TestAccessIsAskedFor: a configuration that needs the API server is refused by
// a daemon that was given none.
func TestAccessIsAskedFor(t *testing.T) {
	plain := &bridgeconfig.Configuration{Drivers: []bridgeconfig.Driver{{}}}
	needs := &bridgeconfig.Configuration{Drivers: []bridgeconfig.Driver{{}, {Attach: bridgeconfig.AttachVA, ServiceAccountTokens: true, Secrets: bridgeconfig.Secrets{
		NodeStage: &bridgeconfig.SecretSource{SecretRef: &bridgeconfig.SecretRef{Name: "a", Namespace: "b"}},
	}}}}
	for _, tt := range []struct {
		access apiAccess
		config *bridgeconfig.Configuration
		want   string // of the error; empty: none
	}{
		{apiAccess{}, plain, ""},
		{apiAccess{}, needs, "(drivers[1].attach, drivers[1].serviceAccountTokens, drivers[1].secrets.nodeStage.secretRef): give --in-cluster or --kubeconfig"},
		{apiAccess{inCluster: true}, needs, ""},
		{apiAccess{kubeconfig: "/a"}, needs, ""},
	} {
		err := tt.access.requireCluster(tt.config)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.HasSuffix(err.Error(), tt.want)) {
			t.Errorf("%+v: %v", tt.access, err)
		}
	}
}
