package wire_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/internal/daemon"
	"github.com/flex2csi/flex2csi/internal/wire"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// envAsk makes the test binary ask at a socket.
const envAsk = "WIRE_TEST_ASK"

func TestMain(m *testing.M) {
	if socket := os.Getenv(envAsk); socket != "" {
		document, err := wire.AskOwn(context.Background(), socket, wire.KindReady, time.Minute)
		fmt.Printf("%s, absent %t, %v\n", document, wire.IsAbsent(err), err)
		os.Exit(0)
	}
	testenv.Main(m)
}

// TestAskOwnInAPod: while the daemon of its own pod does not answer, the
// daemon of another pod does not stand for it.
func TestAskOwnInAPod(t *testing.T) {
	testenv.Need(t, "root")
	socket := serveWith(t, &daemon.Server{Documents: map[string]daemon.StatusDocument{
		wire.KindReady: func() (any, error) { return "another pod's", nil },
	}})
	for flags, want := range map[uintptr]string{
		0:                                     `"another pod's", absent false, <nil>`, // by hand
		unix.CLONE_NEWPID | unix.CLONE_NEWNET: `, absent true, flex2csi does not listen`,
	} {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), envAsk+"="+socket)
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
		got, err := cmd.CombinedOutput()
		if err != nil || !strings.HasPrefix(string(got), want) {
			t.Errorf("with namespaces %#x: %s, %v; want %s", flags, got, err, want)
		}
	}
}
