package flex_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/flex2csi/flex2csi/pkg/flex"
)

// These tests run the test binary as a driver and look at it as the kubelet
// does: standard output and error in one pipe until its end, and the exit
// status.

const (
	behaviourEnv = "FLEX_TEST_BEHAVIOUR" // which Mount the driver has
	readyEnv     = "FLEX_TEST_READY"     // the file that Mount makes when it waits
	filesEnv     = "FLEX_TEST_FILES"     // how many file descriptors it may have
)

func TestMain(m *testing.M) {
	if behaviour, ok := os.LookupEnv(behaviourEnv); ok {
		limitFiles(os.Getenv(filesEnv))
		if name, ok := strings.CutPrefix(behaviour, "flag "); ok {
			os.Exit(flagged(name).Run(os.Args))
		}
		if behaviour, ok := strings.CutPrefix(behaviour, "before Run: "); ok {
			os.Exit(before(behaviour).Run(os.Args))
		}
		os.Exit(flex.Main(testDriver(behaviour)))
	}
	os.Exit(m.Run())
}

func testDriver(behaviour string) *flex.Driver {
	mounts := map[string]func(context.Context, *flex.Call) error{
		"plans":     func(context.Context, *flex.Call) error { panic("with --dry-run nothing is done") },
		"works":     func(context.Context, *flex.Call) error { return nil },
		"exposes":   exposes,
		"logs":      logs,
		"fails":     func(context.Context, *flex.Call) error { return errors.New("password hunter2 refused") },
		"panics":    func(context.Context, *flex.Call) error { panic("hunter2") },
		"chatters":  chatter,
		"waits":     wait,
		"is stuck":  func(context.Context, *flex.Call) error { ready(); select {} },
		"times out": func(ctx context.Context, _ *flex.Call) error { <-ctx.Done(); return ctx.Err() },
		"is long":   func(context.Context, *flex.Call) error { return errors.New(strings.Repeat("long \x01\"", 1<<16)) },
	}
	var got flex.Call
	d := working(&got)
	rest := d.Handle
	d.Handle = func(ctx context.Context, call *flex.Call) (flex.DriverStatus, error) {
		switch {
		case behaviour == "no status":
			return flex.DriverStatus{}, nil
		case call.Command == flex.CommandMount:
			return flex.Success(), mounts[behaviour](ctx, call)
		}
		return rest(ctx, call)
	}
	if behaviour == "plans" {
		d.Plan = func(_ context.Context, call *flex.Call) ([]string, error) {
			if call.Command != flex.CommandMount {
				return nil, errors.New("no " + string(call.Command) + " today")
			}
			return []string{"open " + call.Dir, "mount it with hunter2 of " + string(call.Options.Secrets["password"].Reveal())}, nil
		}
	}
	if behaviour == "times out" || behaviour == "is stuck" {
		d.Timeout = func(flex.Command) time.Duration { return 100 * time.Millisecond }
		if os.Getenv(readyEnv) != "" {
			d.Timeout = nil
		}
	}
	return d
}

// before is a program that does something before it has a driver.
func before(behaviour string) *flex.Program {
	first := map[string]func(){
		"panics":   func() { panic("no configuration, password=hunter2") },
		"is stuck": func() { ready(); select {} },
	}
	return &flex.Program{Name: "driver", Driver: func(*flex.Invocation) *flex.Driver { first[behaviour](); return nil }}
}

// flagged is a program with a flag. Each mount fails with its value as the message.
func flagged(name string) *flex.Program {
	var value string
	return &flex.Program{
		Name:  "driver",
		Flags: func(set *pflag.FlagSet) { set.StringVar(&value, name, "the default", "text") },
		Driver: func(*flex.Invocation) *flex.Driver {
			return doing(flex.CommandMount, func(context.Context, *flex.Call) error { return errors.New(value) })
		},
	}
}

// logs tells its log what it must not.
func logs(ctx context.Context, call *flex.Call) error {
	for key, secret := range call.Options.Secrets {
		flex.Log(ctx).Debug("mounting", "key", key, "password", string(secret.Reveal()))
	}
	return nil
}

// chatter writes to every stream in every way, and leaves a child behind that
// holds them open.
func chatter(ctx context.Context, _ *flex.Call) error {
	fmt.Println("stdout of fmt")
	fmt.Fprintln(os.Stderr, "stderr of fmt")
	log.Print("log")
	println("println")
	_, _ = syscall.Write(1, []byte("file descriptor 1\n"))
	_, _ = syscall.Write(2, []byte("file descriptor 2\n"))
	noisy := exec.CommandContext(ctx, "sh", "-c", "echo child; echo child >&2; sleep 5 & echo more")
	noisy.Stdout, noisy.Stderr = os.Stdout, os.Stderr
	return noisy.Run()
}

// exposes fails if others can read the Secret where the kernel shows the arguments.
func exposes(_ context.Context, call *flex.Call) error {
	shown, err := os.ReadFile("/proc/self/cmdline")
	if err != nil {
		return err
	}
	for key, secret := range call.Options.Secrets {
		encoded := base64.StdEncoding.EncodeToString(secret.Reveal())
		if bytes.Contains(shown, []byte(encoded)) {
			return fmt.Errorf("the secret of key %s can be read", key)
		}
	}
	if len(call.Options.Secrets) == 0 {
		return errors.New("there is no secret")
	}
	return nil
}

// wait ends with its context, but only some time after being told.
func wait(ctx context.Context, _ *flex.Call) error {
	ready()
	<-ctx.Done()
	time.Sleep(50 * time.Millisecond)
	return fmt.Errorf("waiting: %w", context.Cause(ctx))
}

func ready() {
	if file := os.Getenv(readyEnv); file != "" {
		_ = os.WriteFile(file, nil, 0o600)
	}
}

func driverCommand(t *testing.T, behaviour string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), behaviourEnv+"="+behaviour, "GORACE=atexit_sleep_ms=0")
	return cmd
}

// call runs the driver as the kubelet does, and fails if it would mind.
func call(t *testing.T, behaviour string, args ...string) answer {
	t.Helper()
	output, err := driverCommand(t, behaviour, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("the kubelet would log all arguments: %v, output %q", err, output)
	}
	return kubeletReads(t, output)
}

func TestMainAnswersEveryCallout(t *testing.T) {
	for _, command := range flex.Commands() {
		if got := call(t, "works", arguments(command)...); got.Status != "Success" {
			t.Errorf("%s: got %+v", command, got)
		}
	}
	if got := call(t, "works", "init", "surplus"); len(got.Capabilities) != 5 {
		t.Errorf("init: got %+v", got)
	}
	for _, args := range [][]string{{}, {"mount"}, {"mount", podDir, "{"}, {"unmount", "x"}, {"attach", "n1", "n2"}, {"-v"}} {
		if got := call(t, "works", args...); got.Status != "Failure" || got.Message == "" {
			t.Errorf("%q: got %+v", args, got)
		}
	}
	for _, args := range [][]string{{"provision"}, {""}} {
		if got := call(t, "works", args...); got.Status != "Not supported" {
			t.Errorf("%q: got %+v", args, got)
		}
	}
}

func TestMainAnswersWhateverMountDoes(t *testing.T) {
	tests := []struct{ behaviour, status, message string }{
		{"works", "Success", ""},
		{"exposes", "Success", ""},
		{"fails", "Failure", "password [redacted] refused"},
		{"panics", "Failure", "mount panicked at flex/main_test.go:LINE: [redacted]: this is a bug in the driver"},
		{"chatters", "Success", ""},
		{"times out", "Failure", "mount: still in progress after 100ms; call again"},
		{"is stuck", "Failure", "mount: still in progress after 100ms (and has not stopped within 1s); call again"},
		{"is long", "Failure", ""},
		{"no status", "Failure", `the driver gave no valid status (""): this is a bug in the driver`},
	}
	for _, tt := range tests {
		t.Run(tt.behaviour, func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			got := call(t, tt.behaviour, "mount", podDir, secretJSON)
			if took := time.Since(start); took > 4*time.Second {
				t.Errorf("took %v: as long as the child that was left behind", took)
			}
			message := withoutLine(got.Message)
			if got.Status != tt.status || tt.message != "" && message != tt.message {
				t.Errorf("got %s: %s\nwant %s: %s", got.Status, message, tt.status, tt.message)
			}
		})
	}
}

func TestProgramSurvivesWhatComesBeforeRun(t *testing.T) {
	tests := []struct{ behaviour, callout, want string }{
		{"before Run: panics", "mount", "the driver panicked at flex/main_test.go:LINE: no configuration, password=[redacted] this is a bug in the driver"},
		{"before Run: panics", "init", "init panicked at flex/main_test.go:LINE: no configuration, password=[redacted] this is a bug in the driver"},
	}
	for _, tt := range tests {
		got := call(t, tt.behaviour, tt.callout)
		message := withoutLine(got.Message)
		if got.Status != "Failure" || message != tt.want {
			t.Errorf("%s, %s: got %s: %s", tt.behaviour, tt.callout, got.Status, message)
		}
	}
}

// started is a driver that has begun to mount.
type started struct {
	cmd    *exec.Cmd
	output bytes.Buffer
	since  time.Time
}

func start(t *testing.T, behaviour string) *started {
	t.Helper()
	s := &started{cmd: driverCommand(t, behaviour, "mount", podDir, secretJSON)}
	file := filepath.Join(t.TempDir(), "ready")
	s.cmd.Env = append(s.cmd.Env, readyEnv+"="+file)
	s.cmd.Stdout, s.cmd.Stderr = &s.output, &s.output
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(file); err == nil {
			return s
		}
		if time.Now().After(deadline) {
			_ = s.cmd.Process.Kill()
			t.Fatal("the driver does not begin to mount")
		}
	}
}

func (s *started) signal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	s.since = time.Now()
	if err := s.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

func TestMainOnSignal(t *testing.T) {
	const tail = "; call again"
	tests := []struct {
		behaviour string
		signal    syscall.Signal
		want      string
	}{
		{"waits", syscall.SIGTERM, `mount: interrupted by the signal "terminated" (waiting: interrupted by the signal "terminated")` + tail},
		{"waits", syscall.SIGINT, `mount: interrupted by the signal "interrupt" (waiting: interrupted by the signal "interrupt")` + tail},
		{"waits", syscall.SIGQUIT, `mount: interrupted by the signal "quit" (waiting: interrupted by the signal "quit")` + tail},
		{"before Run: is stuck", syscall.SIGTERM, `the driver: interrupted by the signal "terminated" (and has not stopped within 500ms)` + tail},
		{"is stuck", syscall.SIGTERM, `mount: interrupted by the signal "terminated" (and has not stopped within 300ms)` + tail},
	}
	for _, tt := range tests {
		t.Run(tt.behaviour+" "+tt.signal.String(), func(t *testing.T) {
			t.Parallel()
			s := start(t, tt.behaviour)
			s.signal(t, syscall.SIGHUP) // ignored
			s.signal(t, syscall.SIGPIPE)
			s.signal(t, tt.signal)
			err := s.cmd.Wait()
			if took := time.Since(s.since); err != nil || took > 3*time.Second {
				t.Errorf("ended after %v: %v", took, err)
			}
			if got := kubeletReads(t, s.output.Bytes()); got.Status != "Failure" || got.Message != tt.want {
				t.Errorf("got %s: %s\nwant Failure: %s", got.Status, got.Message, tt.want)
			}
		})
	}
}

// A second signal must not cost the answer.
func TestMainOnManySignals(t *testing.T) {
	s := start(t, "waits")
	s.signal(t, syscall.SIGTERM)
	for range 20 {
		_ = s.cmd.Process.Signal(syscall.SIGTERM)
		_ = s.cmd.Process.Signal(syscall.SIGHUP)
		time.Sleep(5 * time.Millisecond)
	}
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("ended with %v", err)
	}
	if got := kubeletReads(t, s.output.Bytes()); got.Status != "Failure" {
		t.Errorf("got %+v", got)
	}
}

// Streams that cannot be written to cost the answer, but never the exit
// status: with another the kubelet would log the arguments.
func TestMainWithBrokenStreams(t *testing.T) {
	scripts := map[string]string{
		"standard output closed":       `exec "$0" "$@" >&-`,
		"standard error closed":        `exec "$0" "$@" 2>&-`,
		"standard input closed":        `exec "$0" "$@" <&-`,
		"all closed":                   `exec "$0" "$@" <&- >&- 2>&-`,
		"no space":                     `exec "$0" "$@" >/dev/full 2>&1`,
		"standard output is read-only": `exec "$0" "$@" 1</dev/null`,
		"the reader has exited":        `{ sleep 0.2; exec "$0" "$@"; } | true; exit "$((PIPESTATUS[0]))"`,
	}
	answered := map[string]bool{"standard error closed": true, "standard input closed": true}
	for name, script := range scripts {
		for _, behaviour := range []string{"works", "chatters", "panics"} {
			t.Run(name+", mount "+behaviour, func(t *testing.T) {
				t.Parallel()
				cmd := driverCommand(t, behaviour)
				cmd.Path, cmd.Args = "/bin/bash", append([]string{"bash", "-c", script, os.Args[0]}, "mount", podDir, secretJSON)
				output, err := cmd.CombinedOutput()
				if err != nil {
					t.Errorf("exit status: %v, output %q", err, output)
				}
				if answered[name] || len(output) > 0 {
					kubeletReads(t, output)
				}
			})
		}
	}
}

// limitFiles is done from within: what loads a binary needs some as well.
func limitFiles(n string) {
	if limit, err := strconv.Atoi(n); err == nil {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: uint64(limit), Max: uint64(limit)}); err != nil {
			panic(err)
		}
	}
}

// Go's runtime aborts when it cannot have the file descriptors that it wants;
// that must come out before.
func TestMainWithFewFileDescriptors(t *testing.T) {
	for files := 3; files < 9; files++ {
		for _, behaviour := range []string{"works", "chatters", "panics", "times out"} {
			cmd := driverCommand(t, behaviour, "mount", podDir, secretJSON)
			cmd.Env = append(cmd.Env, fmt.Sprintf("%s=%d", filesEnv, files))
			output, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%d files, mount %s: exit status: %v, output %q", files, behaviour, err, output)
			}
			kubeletReads(t, output)
		}
	}
}

// A pipe that is full and never read keeps the driver for seconds, not for ever.
func TestMainWithFullPipe(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	fill(t, w)
	cmd := driverCommand(t, "works", "mount", podDir, secretJSON)
	cmd.Stdout, cmd.Stderr = w, w
	start := time.Now()
	err = cmd.Run()
	if took := time.Since(start); err != nil || took < 4*time.Second || took > 9*time.Second {
		t.Errorf("ended after %v: %v", took, err)
	}
}

// fill writes to a pipe until nothing more fits in, and leaves it blocking.
func fill(t *testing.T, w *os.File) {
	t.Helper()
	fd := int(w.Fd())
	if err := syscall.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := syscall.Write(fd, make([]byte, 4096)); err != nil {
			break
		}
	}
	if err := syscall.SetNonblock(fd, false); err != nil {
		t.Fatal(err)
	}
}
