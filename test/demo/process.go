package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// A process runs beside the story.
type process struct {
	name string
	cmd  *exec.Cmd
	log  string
}

// csiDriver is what this program is called where it is the CSI driver.
const csiDriver = "csidriver"

func (n *node) csiDir() string   { return n.dir + "/csi" }
func (n *node) socket() string   { return n.dir + "/run/flex2csi.sock" }
func (n *node) stateDir() string { return n.dir + "/state" }
func (n *node) callLog() string  { return n.dir + "/calls" }
func (n *node) faults() string   { return n.dir + "/faults" }

// start starts a program that is ready when a socket is there.
func (n *node) start(name, binary, socket string, args ...string) (*process, error) {
	_ = os.Remove(socket) // that of the process before is one that nobody listens at
	p := &process{name: name, cmd: n.command(binary, args...), log: n.dir + "/" + name + ".log"}
	p.cmd.Args[0] = name
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	for stop := time.Now().Add(20 * time.Second); time.Now().Before(stop); time.Sleep(time.Millisecond) {
		if _, err := os.Lstat(socket); err == nil {
			return p, nil
		}
	}
	_ = p.end(syscall.SIGKILL)
	return nil, fmt.Errorf("%s is not ready after 20 s: %s", name, p.lastWords())
}

// end ends a process, and reaps it.
func (p *process) end(signal syscall.Signal) error {
	if p == nil || p.cmd.ProcessState != nil {
		return nil
	}
	if err := p.cmd.Process.Signal(signal); err != nil {
		return err
	}
	if err := p.cmd.Wait(); err != nil && signal != syscall.SIGKILL {
		return fmt.Errorf("%s: %w: %s", p.name, err, p.lastWords())
	}
	return nil
}

// lastWords are the last line of its log.
func (p *process) lastWords() string {
	text, _ := os.ReadFile(p.log)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return lines[len(lines)-1]
}
