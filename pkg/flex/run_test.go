package flex_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flex2csi/flex2csi/pkg/flex"
)

const secretJSON = `{"kubernetes.io/secret/password":"aHVudGVyMg=="}` // hunter2

// working returns a driver that succeeds in each callout and records it.
func working(got *flex.Call) *flex.Driver {
	return &flex.Driver{
		Capabilities: flex.DefaultCapabilities(),
		Callouts:     flex.Commands(),
		Handle: func(_ context.Context, c *flex.Call) (flex.DriverStatus, error) {
			*got = *c
			answer := flex.Success()
			switch c.Command {
			case flex.CommandGetVolumeName:
				answer.VolumeName = "vol"
			case flex.CommandAttach:
				answer.Device = "/dev/a"
			case flex.CommandIsAttached:
				answer.Attached = new(false)
			case flex.CommandWaitForAttach:
				answer.Device = "/dev/b"
			}
			return answer, nil
		},
	}
}

// doing returns a driver with one callout.
func doing(callout flex.Command, do func(context.Context, *flex.Call) error) *flex.Driver {
	return &flex.Driver{
		Callouts: []flex.Command{callout},
		Handle:   func(ctx context.Context, c *flex.Call) (flex.DriverStatus, error) { return flex.Success(), do(ctx, c) },
	}
}

func arguments(c flex.Command) []string {
	return map[flex.Command][]string{
		flex.CommandInit:          {"init"},
		flex.CommandGetVolumeName: {"getvolumename", fullJSON},
		flex.CommandAttach:        {"attach", fullJSON, "n1"},
		flex.CommandIsAttached:    {"isattached", fullJSON, "n1"},
		flex.CommandWaitForAttach: {"waitforattach", "/dev/a", fullJSON},
		flex.CommandMountDevice:   {"mountdevice", deviceDir, "/dev/a", fullJSON},
		flex.CommandMount:         {"mount", podDir, fullJSON},
		flex.CommandUnmount:       {"unmount", podDir},
		flex.CommandUnmountDevice: {"unmountdevice", deviceDir},
		flex.CommandDetach:        {"detach", "pv1", "n1"},
		flex.CommandExpandVolume:  {"expandvolume", fullJSON, deviceDir, "2", "1"},
		flex.CommandExpandFS:      {"expandfs", fullJSON, "", podDir, "2", "1"},
	}[c]
}

func TestRunDispatches(t *testing.T) {
	success := flex.DriverStatus{Status: flex.StatusSuccess}
	capabilities := flex.DefaultCapabilities()
	special := map[flex.Command]flex.DriverStatus{
		flex.CommandInit:          {Status: flex.StatusSuccess, Capabilities: &capabilities},
		flex.CommandGetVolumeName: {Status: flex.StatusSuccess, VolumeName: "vol"},
		flex.CommandAttach:        {Status: flex.StatusSuccess, Device: "/dev/a"},
		flex.CommandIsAttached:    {Status: flex.StatusSuccess, Attached: new(false)},
		flex.CommandWaitForAttach: {Status: flex.StatusSuccess, Device: "/dev/b"},
	}
	for _, command := range flex.Commands() {
		t.Run(string(command), func(t *testing.T) {
			var got flex.Call
			status := flex.Run(t.Context(), working(&got), arguments(command))
			want, ok := special[command]
			if !ok {
				want = success
			}
			if diff := cmp.Diff(want, status); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
			if command != flex.CommandInit && got.Command != command {
				t.Errorf("the function got %+v", got)
			}
		})
	}
}

// A driver that does nothing answers before it looks at the arguments.
func TestRunNotSupported(t *testing.T) {
	none := working(new(flex.Call))
	none.Callouts = []flex.Command{}
	for _, d := range []*flex.Driver{nil, {}, {Callouts: flex.Commands()}, none} {
		for _, command := range append(flex.Commands(), "provision", "", "Mount") {
			if command == flex.CommandInit {
				continue
			}
			for _, args := range [][]string{{string(command)}, {string(command), "{", "x", "\x00"}} {
				status := flex.Run(t.Context(), d, args)
				if status.Status != flex.StatusNotSupported || status.Message == "" {
					t.Errorf("%q: got %+v", args, status)
				}
			}
		}
	}
	status := flex.Run(t.Context(), &flex.Driver{}, []string{"provision"})
	if !strings.HasPrefix(status.Message, `"provision" is no callout`) {
		t.Errorf("the unknown callout is not named: %s", status.Message)
	}
}

func TestRunInitCannotFail(t *testing.T) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	drivers := []*flex.Driver{nil, {}, {Timeout: func(flex.Command) time.Duration { panic("x") }}}
	for _, d := range drivers {
		for _, args := range [][]string{{"init"}, {"init", "{", ""}} {
			if s := flex.Run(cancelled, d, args); s.Status != flex.StatusSuccess || s.Capabilities == nil {
				t.Errorf("%q: got %+v", args, s)
			}
		}
	}
}

func TestRunFailures(t *testing.T) {
	failing := func(err error) *flex.Driver {
		return doing(flex.CommandMount, func(context.Context, *flex.Call) error { return err })
	}
	panicking := func(value any) *flex.Driver {
		return doing(flex.CommandMount, func(context.Context, *flex.Call) error { panic(value) })
	}
	var nilMap map[string]int
	tests := []struct {
		name string
		d    *flex.Driver
		args []string
		want string
		code flex.Code
	}{
		{"an error", failing(flex.Errorf(flex.CodeNotFound, "no image /a")), nil, "no image /a", flex.CodeNotFound},
		{"an error with the secret", failing(errors.New("bad hunter2 aHVudGVyMg==, password=x")), nil, "bad [redacted] [redacted], password=[redacted]", flex.CodeInternal},
		{"never Not supported by an error", failing(flex.Errorf(flex.CodeUnimplemented, "the storage cannot do this")), nil, "the storage cannot do this", flex.CodeUnimplemented},
		{"never Not supported by its text", failing(errors.New("Not supported")), nil, "Not supported", flex.CodeInternal},
		{"an error that panics", failing(&badError{}), nil, "%!v(PANIC=Error method: no text)", flex.CodeInternal},
		{"a panic", panicking("hunter2 is wrong"), nil, "mount panicked at flex/run_test.go:LINE: [redacted] is wrong: this is a bug in the driver", flex.CodeInternal},
		{"a panic of the runtime", doing(flex.CommandMount, func(context.Context, *flex.Call) error { nilMap["a"] = 1; return nil }), nil, "mount panicked at flex/run_test.go:LINE: assignment to entry in nil map: this is a bug in the driver", flex.CodeInternal},
		{"a panic with nil", panicking(nil), nil, "mount panicked at flex/run_test.go:LINE: panic called with nil argument: this is a bug in the driver", flex.CodeInternal},
		{"a goroutine that ends", doing(flex.CommandMount, func(context.Context, *flex.Call) error { runtime.Goexit(); return nil }), nil, "mount ended without an answer: this is a bug in the driver", flex.CodeInternal},
		{"a timeout that panics", &flex.Driver{Handle: failing(nil).Handle, Timeout: func(flex.Command) time.Duration { panic("hunter2") }}, nil, "the driver panicked: this is a bug in it", flex.CodeInternal},
		{"no arguments", failing(nil), []string{"mount"}, "mount: got 0 arguments, want 2: the JSON options are missing; usage: mount <directory> <JSON options>", flex.CodeInvalidArgument},
		{"no callout", failing(nil), []string{}, "no callout given: want one of " + "init, getvolumename, attach, isattached, waitforattach, mountdevice, mount, expandvolume, expandfs, unmount, unmountdevice, detach", flex.CodeInvalidArgument},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			args := tt.args
			if args == nil {
				args = []string{"mount", podDir, secretJSON}
			}
			got := flex.Run(t.Context(), tt.d, args)
			if got.Status != flex.StatusFailure || got.Code != tt.code {
				t.Errorf("status %q, code %q", got.Status, got.Code)
			}
			if message := withoutLine(got.Message); message != tt.want {
				t.Errorf("\ngot  %s\nwant %s", message, tt.want)
			}
		})
	}
}

// withoutLine makes messages comparable that name a line of a test.
func withoutLine(s string) string {
	return regexp.MustCompile(`_test\.go:\d+`).ReplaceAllString(s, "_test.go:LINE")
}

func TestRunDeadline(t *testing.T) {
	const tail = "; call again"
	wait := func(result func(context.Context) error) func(context.Context, *flex.Call) error {
		return func(ctx context.Context, _ *flex.Call) error {
			<-ctx.Done()
			return result(ctx)
		}
	}
	stuck := func(context.Context, *flex.Call) error { time.Sleep(time.Hour); return nil }
	tests := []struct {
		name  string
		mount func(context.Context, *flex.Call) error
		want  string // empty: Success
		code  flex.Code
		after time.Duration
	}{
		{"the context's error", wait(context.Context.Err), "mount: still in progress after 1m0s" + tail, flex.CodeDeadlineExceeded, time.Minute},
		{"the cause", wait(context.Cause), "mount: still in progress after 1m0s" + tail, flex.CodeDeadlineExceeded, time.Minute},
		{"a wrapped error", wait(func(ctx context.Context) error { return fmt.Errorf("mkfs with hunter2: %w", ctx.Err()) }), "mount: still in progress after 1m0s (mkfs with [redacted]: context deadline exceeded)" + tail, flex.CodeDeadlineExceeded, time.Minute},
		{"the end of a child", wait(func(context.Context) error { return errors.New("mkfs: signal: killed") }), "mount: still in progress after 1m0s (mkfs: signal: killed)" + tail, flex.CodeDeadlineExceeded, time.Minute},
		{"an error of its own", wait(func(context.Context) error { return flex.Errorf(flex.CodeNotFound, "no image") }), "no image", flex.CodeNotFound, time.Minute},
		{"a late success", wait(func(context.Context) error { time.Sleep(900 * time.Millisecond); return nil }), "", "", time.Minute + 900*time.Millisecond},
		{"a late panic", wait(func(context.Context) error { panic("late") }), "mount: still in progress after 1m0s (mount panicked at flex/run_test.go:LINE: late: this is a bug in the driver)" + tail, flex.CodeDeadlineExceeded, time.Minute},
		{"stuck", stuck, "mount: still in progress after 1m0s (and has not stopped within 1s)" + tail, flex.CodeDeadlineExceeded, time.Minute + time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := doing(flex.CommandMount, tt.mount)
				d.Timeout = func(flex.Command) time.Duration { return time.Minute }
				start := time.Now()
				got := flex.Run(t.Context(), d, []string{"mount", podDir, secretJSON})
				if took := time.Since(start); took != tt.after {
					t.Errorf("took %v, want %v", took, tt.after)
				}
				if message := withoutLine(got.Message); message != tt.want || got.Code != tt.code {
					t.Errorf("code %s\ngot  %s\nwant %s", got.Code, message, tt.want)
				}
				if (got.Status == flex.StatusSuccess) != (tt.want == "") {
					t.Errorf("status %s", got.Status)
				}
				time.Sleep(time.Hour) // until what is stuck has ended, as synctest wants
			})
		})
	}
}

func TestRunDefaultTimeout(t *testing.T) {
	for _, timeout := range []func(flex.Command) time.Duration{nil, func(flex.Command) time.Duration { return 0 }, func(flex.Command) time.Duration { return -1 }} {
		synctest.Test(t, func(t *testing.T) {
			d := doing(flex.CommandWaitForAttach, func(ctx context.Context, _ *flex.Call) error {
				<-ctx.Done()
				return context.Cause(ctx)
			})
			d.Timeout = timeout
			start := time.Now()
			got := flex.Run(t.Context(), d, []string{"waitforattach", "", "{}"})
			if took := time.Since(start); took != 9*time.Minute || got.Status != flex.StatusFailure {
				t.Errorf("took %v: %+v", took, got)
			}
		})
	}
}

func TestRunCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(flex.Errorf(flex.CodeCanceled, "the node shuts down")) })
		var cause error
		d := doing(flex.CommandUnmount, func(ctx context.Context, _ *flex.Call) error {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return ctx.Err()
		})
		got := flex.Run(ctx, d, []string{"unmount", podDir})
		if want := "unmount: the node shuts down; call again"; got.Message != want || got.Code != flex.CodeCanceled {
			t.Errorf("code %s\ngot  %s\nwant %s", got.Code, got.Message, want)
		}
		if cause == nil || cause.Error() != "the node shuts down" {
			t.Errorf("the function saw the cause %v", cause)
		}
	})
}

// A driver that does not name its callouts has all but the two that are better left to Run
// and the kubelet.
func TestRunWithoutCallouts(t *testing.T) {
	done := map[flex.Command]bool{}
	d := &flex.Driver{
		Handle: func(_ context.Context, call *flex.Call) (flex.DriverStatus, error) {
			done[call.Command] = true
			answer := flex.DriverStatus{Status: flex.StatusSuccess, Device: "from Handle"}
			if call.Command == flex.CommandUnmount {
				return answer, errors.New("its own")
			}
			return answer, nil
		},
	}
	for _, command := range flex.Commands() {
		status := flex.Run(t.Context(), d, arguments(command))
		want := flex.DriverStatus{Status: flex.StatusSuccess, Device: "from Handle"}
		switch command {
		case flex.CommandInit:
			want = flex.DriverStatus{Status: flex.StatusSuccess, Capabilities: &flex.Capabilities{}}
		case flex.CommandGetVolumeName:
			want = flex.DriverStatus{Status: flex.StatusNotSupported, Code: flex.CodeUnimplemented, Message: "getvolumename is not something that this driver does"}
		case flex.CommandUnmount:
			want = flex.DriverStatus{Status: flex.StatusFailure, Code: flex.CodeInternal, Message: "its own"}
		}
		if diff := cmp.Diff(want, status); diff != "" {
			t.Errorf("%s: -want +got\n%s", command, diff)
		}
	}
	if status := flex.Run(t.Context(), d, []string{"provision"}); status.Status != flex.StatusNotSupported || len(done) != 10 {
		t.Errorf("an unknown callout is %+v; Handle did %v", status, done)
	}
}
