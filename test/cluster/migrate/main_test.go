// Package migrate_test plans and makes migrations on a real control plane: an
// API server with its admission, and the controllers that bind claims and attach
// volumes. What a kubelet and a bridge would say is written by the tests.
package migrate_test

import (
	"testing"

	"github.com/flex2csi/flex2csi/test/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }
