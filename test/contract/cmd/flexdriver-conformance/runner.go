package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	kexec "k8s.io/utils/exec"
)

// call is one execution of the driver.
type call struct {
	args   []string
	output string // stdout and stderr, as the kubelet reads them
	err    error  // of the process
	took   time.Duration
	held   bool // a child kept the streams open after the driver's end
	late   bool // it reached the deadline, and was killed
}

// answer is what the kubelet reads (pkg/volume/flexvolume/driver-call.go, DriverStatus).
type answer struct {
	Status       string          `json:"status"`
	Message      string          `json:"message"`
	Capabilities json.RawMessage `json:"capabilities"`
}

// answer returns the call's, in the words of the kubelet: one JSON object and nothing else.
func (c *call) answer() (answer, error) {
	var a answer
	decoder := json.NewDecoder(strings.NewReader(c.output))
	if err := decoder.Decode(&a); err != nil {
		return a, fmt.Errorf("%s answers no JSON object: %w", c.args[0], err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return a, fmt.Errorf("%s prints more than one JSON object", c.args[0])
	}
	return a, nil
}

// wants returns an error if the answer has another status.
func (c *call) wants(status string) error {
	a, err := c.answer()
	if err == nil && a.Status != status {
		err = fmt.Errorf("%s answers %q, want %q", c.args[0], a.Status, status)
	}
	return err
}

// runner is what Kubernetes' code, and the checks, start the driver with.
type runner struct {
	kexec.Interface // nil: FlexVolume's code calls only Command
	deadline        time.Duration
	dir             string // where the driver runs

	mu    sync.Mutex
	calls []*call
}

func (r *runner) Command(path string, args ...string) kexec.Cmd {
	cmd := exec.Command(path, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// A child that keeps the streams open holds the kubelet until it ends. Here it is
	// found, and not waited for.
	cmd.WaitDelay = time.Second
	cmd.Dir = r.dir
	return &command{runner: r, cmd: cmd, args: args}
}

// command is the part of kexec.Cmd that is used.
type command struct {
	kexec.Cmd
	runner *runner
	cmd    *exec.Cmd
	args   []string
}

// Stop is what the kubelet does at the deadline of waitforattach.
func (c *command) Stop() { _ = c.cmd.Process.Signal(syscall.SIGTERM) }

func (c *command) CombinedOutput() ([]byte, error) {
	var output bytes.Buffer
	c.cmd.Stdout, c.cmd.Stderr = &output, &output
	done := &call{args: c.args}
	start := time.Now()
	err := c.cmd.Start()
	if err == nil {
		timer := time.AfterFunc(c.runner.deadline, func() {
			_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL)
		})
		err = c.cmd.Wait()
		timer.Stop()
	}
	if errors.Is(err, exec.ErrWaitDelay) {
		done.held, err = true, nil
	}
	done.took, done.late = time.Since(start), time.Since(start) >= c.runner.deadline
	done.output, done.err = output.String(), err
	c.runner.mu.Lock()
	defer c.runner.mu.Unlock()
	c.runner.calls = append(c.runner.calls, done)
	return output.Bytes(), err
}

// last returns the latest call of a command, or nil.
func (r *runner) last(command string) *call {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := len(r.calls) - 1; i >= 0; i-- {
		if r.calls[i].args[0] == command {
			return r.calls[i]
		}
	}
	return nil
}
