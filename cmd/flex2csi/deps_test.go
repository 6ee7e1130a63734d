package main

import (
	"slices"
	"testing"

	"github.com/flex2csi/flex2csi/internal/testenv"
)

// forbidden is what the daemon must not link. There is no list of what it does
// link: that has hundreds of lines, most of them gRPC's and CEL's.
const forbidden = `
testing                                  internal/testenv and fakes are for tests
github.com/flex2csi/flex2csi/test        what the daemon is tested with
github.com/flex2csi/flex2csi/internal/testenv   for tests
github.com/google/go-cmp                 for tests; it panics on purpose
github.com/kubernetes-csi/csi-test       for tests
k8s.io/kubernetes                        for tests
net/http/pprof                           registers itself with any HTTP server
`

func TestDeps(t *testing.T) {
	linked := testenv.Linked(t, forbidden)
	if !slices.Contains(linked, "google.golang.org/grpc") {
		t.Errorf("these are not the daemon's %d packages: gRPC is not among them", len(linked))
	}
}
