// Package kube_test drives internal/kube against a real API server. Where what
// an external-attacher does matters to the millisecond, or has to go wrong, the
// test does it by hand: it writes the status as that would.
package kube_test

import (
	"testing"

	"github.com/flex2csi/flex2csi/test/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }
