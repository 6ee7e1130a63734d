// Package handoff is flexdriver's backend csi: it passes each callout to the daemon
// flex2csi on the same node, and returns the daemon's answer. Only unmount cannot wait
// for a daemon that does not run; handoff does that by itself (alone.go).
//
// It is part of a program that starts for each callout: everything about CSI drivers is in
// the daemon.
package handoff

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/internal/kubeletdir"
	"github.com/flex2csi/flex2csi/internal/wire"
	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/pkg/mounter"
)

// A Backend hands over one callout.
type Backend struct {
	// Name is the driver's, vendor/name. Empty: as in the path of the callout.
	Name string
	// Argv is the callout and its arguments, for the request.
	Argv []string
	// Request is the ID of all requests of the callout; empty: each has a random one.
	Request string
	// Socket is the daemon's; StateDir has the pending unmounts.
	Socket, StateDir string
	// ControllerSocket is flex2csi controller's, for the callouts of
	// kube-controller-manager. If it is empty or does not exist, the daemon gets them.
	ControllerSocket string
	// KubeletDir is the kubelet's root directory; empty: from the kubelet's paths.
	KubeletDir string
	// Mounter unmounts without the daemon.
	Mounter mounter.Mounter
	// Log is optional.
	Log *slog.Logger

	// afterWrite is for tests: it is called when a pending unmount was written.
	afterWrite func()
}

// Driver returns the driver for flex.Run.
func (b *Backend) Driver() *flex.Driver { return &flex.Driver{Handle: b.handle, Plan: b.Plan} }

// handle returns what of the daemon's answer belongs to the callout.
func (b *Backend) handle(ctx context.Context, c *flex.Call) (flex.DriverStatus, error) {
	answer := flex.Success()
	if c.Command == flex.CommandUnmount {
		return answer, b.unmount(ctx, c)
	}
	status, err := b.handOver(ctx, c, wire.Call)
	switch c.Command {
	case flex.CommandAttach, flex.CommandWaitForAttach:
		answer.Device = status.Device
	case flex.CommandIsAttached:
		answer.Attached = status.Attached
		if err == nil && answer.Attached == nil {
			err = flex.Errorf(flex.CodeInternal, "flex2csi did not say whether the volume is attached")
		}
	}
	return answer, err
}

// socketFor returns the controller's socket for callouts of kube-controller-manager, which
// a node's daemon cannot do for other nodes. If the socket does not exist it returns the
// daemon's: a kubelet that attaches by itself (--enable-controller-attach-detach=false) has
// the same configuration and no controller.
func (b *Backend) socketFor(command flex.Command) string {
	if b.ControllerSocket == "" || !ofController(command) {
		return b.Socket
	}
	if err := unix.Access(b.ControllerSocket, unix.F_OK); errors.Is(err, unix.ENOENT) {
		b.log().Debug("there is no socket of a controller", "path", b.ControllerSocket)
		return b.Socket
	}
	return b.ControllerSocket
}

// ofController reports whether kube-controller-manager makes a callout.
func ofController(command flex.Command) bool {
	return command == flex.CommandAttach || command == flex.CommandDetach || command == flex.CommandIsAttached
}

// norController adds the other socket to an error.
func (b *Backend) norController(command flex.Command, tried string, err error) error {
	if !ofController(command) || b.ControllerSocket == "" || tried == b.ControllerSocket {
		return err
	}
	return flex.Errorf(flex.CodeOf(err), "%w Nor is there the socket of flex2csi controller, %s", err, b.ControllerSocket)
}

// A caller is [wire.Call], which waits a while for an absent daemon, or [wire.CallNow].
type caller func(ctx context.Context, socket string, r *wire.Request) (*wire.Response, error)

// handOver passes the callout to the daemon.
func (b *Backend) handOver(ctx context.Context, c *flex.Call, call caller) (flex.DriverStatus, error) {
	name, err := b.name(c)
	if err != nil {
		return flex.DriverStatus{}, err
	}
	r := wire.NewRequest(name, b.Argv, daemonTimeout(ctx))
	r.ID = cmp.Or(b.Request, r.ID)
	socket := b.socketFor(c.Command)
	b.log().Debug("handing over to flex2csi", "socket", socket, "flexDriver", name, "timeout", r.Timeout())
	response, err := call(ctx, socket, r)
	if err == nil {
		err = answerError(c.Command, response)
	}
	if err != nil {
		if wire.IsAbsent(err) {
			err = b.norController(c.Command, socket, err)
		} else {
			err = inRequest(r.ID, err, flex.NewRedactor(c.Options))
		}
		return flex.DriverStatus{}, err
	}
	return response.Status, nil
}

// Probe returns why callouts of a driver would fail now: there is no daemon, its
// configuration does not have the driver, or its state directory is another one.
func Probe(ctx context.Context, driver, socket, stateDir string) error {
	const patience = 2 * time.Second
	r := wire.NewRequest(driver, []string{string(flex.CommandInit)}, patience)
	response, err := wire.CallNow(ctx, socket, r)
	if err == nil {
		err = answerError(flex.CommandInit, response)
	}
	if err != nil {
		return err
	}
	if _, err := os.Stat(stateDir); err != nil {
		return fmt.Errorf("flex2csi does not keep its state where it would be left notes: %w (give --state-dir as it is given to flex2csi, or as the node sees that directory)", err)
	}
	return nil
}

// reserve is the time between the daemon's deadline and ours, so that the answer is the
// daemon's, which knows what takes so long.
const reserve = time.Second

// daemonTimeout returns the time that the daemon may take: one second less than what is left.
func daemonTimeout(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return flex.DefaultTimeout(flex.CommandMount)
	}
	left := time.Until(deadline)
	return max(left-reserve, left/2, time.Millisecond)
}

// answerError returns the error in an answer. A daemon that does not know a callout is
// older than this driver; "Not supported" would stay in the kubelet's memory.
func answerError(command flex.Command, r *wire.Response) error {
	switch r.Status.Status {
	case flex.StatusSuccess:
		return nil
	case flex.StatusNotSupported:
		return flex.Errorf(flex.CodeFailedPrecondition, "the daemon flex2csi on this node does not know %s; bring it to the release of flexdriver", command)
	}
	code := r.Code
	if code == "" {
		code = flex.CodeInternal
	}
	return &flex.Error{Code: code, Err: errors.New(r.Status.Message)}
}

// maxText leaves room for a request's ID in an answer: its message is cut at 1 KiB.
const maxText = 960

// inRequest adds the ID of the request, which the daemon's log has, too. It removes secrets
// first: after cutting the text half of one would not be recognized.
func inRequest(id string, err error, redactor *flex.Redactor) error {
	text := redactor.Redact(err.Error())
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "…"
	}
	return &flex.Error{Code: flex.CodeOf(err), Err: &requestError{text: fmt.Sprintf("%s (request %s)", text, id), err: err}}
}

// requestError is an error with another text.
type requestError struct {
	text string
	err  error
}

func (e *requestError) Error() string { return e.text }
func (e *requestError) Unwrap() error { return e.err }

// name is the driver's name.
func (b *Backend) name(c *flex.Call) (string, error) {
	if b.Name != "" {
		return b.Name, nil
	}
	place, err := kubeletdir.Parse(c.Dir)
	if err != nil {
		return "", flex.Errorf(flex.CodeInvalidArgument, "for which driver? neither the place of the executable nor the arguments name one; give --driver VENDOR/NAME")
	}
	return place.Driver, nil
}

func (b *Backend) log() *slog.Logger {
	if b.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return b.Log
}
