package install

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/flex2csi/flex2csi/pkg/flex"
)

const (
	maxOutput = 64 << 10
	// SlowInit is when to warn: while init runs no volume operation of the node
	// can begin (pkg/volume/plugins.go, refreshProbedPlugins).
	SlowInit = time.Second
)

// verify is [TryInit], and warns if it was slow.
func (in *installer) verify(ctx context.Context, path string, want *flex.Capabilities) error {
	start := time.Now()
	if err := TryInit(ctx, path, in.VerifyTimeout, want); err != nil {
		return fmt.Errorf("run %s init: %w", path, err)
	}
	if took := time.Since(start); took > SlowInit {
		in.warn("init took %v, and all volume operations of the node wait for it", took.Round(time.Millisecond))
	}
	return nil
}

// TryInit runs a driver's init as the kubelet does (pkg/volume/flexvolume/driver-call.go) and
// wants what the kubelet wants: exit status 0 and, in standard output and standard error
// together, one JSON object with the status Success. If want is not nil, the capabilities
// must be those. A driver that does not end in time is killed.
func TryInit(ctx context.Context, path string, timeout time.Duration, want *flex.Capabilities) error {
	output, err := runInit(ctx, path, timeout)
	if err != nil {
		return err
	}
	got, err := parseInit(output)
	if err == nil && want != nil && got != *want {
		err = fmt.Errorf("it answers the capabilities %+v, not those of its configuration, %+v: is the executable another version? Install again", got, *want)
	}
	return err
}

func runInit(ctx context.Context, path string, timeout time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()

	var output limitedBuffer
	cmd := exec.CommandContext(ctx, path, "init")
	cmd.Dir = "/" // keeps no file system busy
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second

	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("no answer after %v: %w", timeout, ctx.Err())
	case cmd.ProcessState == nil:
		return nil, startError(err)
	case err != nil:
		return nil, fmt.Errorf("%w (it said %s)", err, output.quoted())
	}
	return output.data, nil
}

// startError adds to the kernel's error its usual cause.
func startError(err error) error {
	hint := ""
	switch {
	case errors.Is(err, fs.ErrPermission):
		hint = " (a noexec mount, or SELinux forbids it: ausearch -m avc)"
	case errors.Is(err, syscall.ENOEXEC):
		hint = " (built for another processor, or no program)"
	case errors.Is(err, fs.ErrNotExist):
		hint = " (dynamically linked, and its loader is not here: build it with CGO_ENABLED=0)"
	case errors.Is(err, syscall.ETXTBSY):
		hint = " (something has it open for writing: fuser shows what)"
	}
	return fmt.Errorf("%w%s", unwrapPath(err), hint)
}

func parseInit(output []byte) (flex.Capabilities, error) {
	var answer struct {
		Status, Message string
		Capabilities    json.RawMessage
	}
	quoted := (&limitedBuffer{data: output}).quoted()
	if err := json.Unmarshal(output, &answer); err != nil {
		return flex.Capabilities{}, fmt.Errorf("the answer is not one JSON object: %w (it said %s)", err, quoted)
	}
	if answer.Status != string(flex.StatusSuccess) {
		return flex.Capabilities{}, fmt.Errorf("the answer's status is %q, not %q (it said %s)", answer.Status, flex.StatusSuccess, quoted)
	}
	// The kubelet follows the pointer without a check (plugin.go,
	// NewFlexVolumePlugin) and crashes.
	if string(answer.Capabilities) == "null" {
		return flex.Capabilities{}, errors.New("its capabilities are null, which would crash the kubelet")
	}
	// Those that a driver does not name have a default (driver-call.go,
	// defaultCapabilities).
	got := flex.Capabilities{Attach: true, SELinuxRelabel: true, FSGroup: true, RequiresFSResize: true}
	if len(answer.Capabilities) == 0 {
		return got, nil
	}
	if err := json.Unmarshal(answer.Capabilities, &got); err != nil {
		return flex.Capabilities{}, fmt.Errorf("its capabilities are not as the kubelet wants them: %w (it said %s)", err, quoted)
	}
	return got, nil
}

// limitedBuffer keeps the first bytes and swallows the others.
type limitedBuffer struct{ data []byte }

func (b *limitedBuffer) Write(p []byte) (int, error) {
	b.data = append(b.data, p[:min(len(p), maxOutput-len(b.data))]...)
	return len(p), nil
}

func (b *limitedBuffer) quoted() string {
	const most = 256
	text := strings.ToValidUTF8(strings.TrimSpace(string(b.data)), "?")
	if text == "" {
		return "nothing"
	}
	if len(text) > most {
		return fmt.Sprintf("%.*q…", most, text)
	}
	return fmt.Sprintf("%q", text)
}
