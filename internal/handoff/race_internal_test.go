package handoff

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/flex2csi/flex2csi/internal/daemon"
	"github.com/flex2csi/flex2csi/internal/statedir"
	"github.com/flex2csi/flex2csi/internal/wire"
	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// TestDaemonBackMeanwhile: a daemon that started after the first dial, and before the
// pending unmount was written, has not seen it. It gets the call, and flexdriver does
// not unmount.
func TestDaemonBackMeanwhile(t *testing.T) {
	dir := t.TempDir()
	target := testenv.Kubelet(t).PodVolumeDir("1", "example.com/disk", "data")
	argv := []string{"unmount", target}
	b := &Backend{Name: "example.com/disk", Argv: argv, Socket: filepath.Join(dir, "s"), StateDir: filepath.Join(dir, "state")}
	b.afterWrite = func() {
		if _, found, err := statedir.FindPendingUnmount(b.StateDir, target); !found || err != nil {
			t.Errorf("there is no pending unmount: %v", err)
		}
		l, err := daemon.Listen(b.Socket)
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { l.Close() })
		s := &daemon.Server{AllowUID: os.Getuid(), Handler: func(context.Context, *wire.Request) flex.DriverStatus {
			return flex.Failure(flex.Errorf(flex.CodeAborted, "the daemon's word"))
		}}
		go func() { _ = s.Serve(context.Background(), l) }() // until l is closed
	}
	status := flex.Run(t.Context(), b.Driver(), argv)
	if status.Code != flex.CodeAborted {
		t.Errorf("%+v, want what the daemon said", status)
	}
}
