package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/test/node"
)

// pause between two looks whether the node is up.
const pause = 50 * time.Millisecond

// up starts the node as a process of its own, and returns when it can be used.
func (c *command) up(images []string) error {
	if err := node.Down(c.dir); err != nil && !errors.Is(err, node.ErrDown) {
		return err
	}
	if err := os.RemoveAll(c.dir); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(c.dir, "log"), 0o755); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(c.dir, "log", "node.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(exe, append([]string{"--dir", c.dir, "--kubernetes", c.kubernetes, "serve"}, images...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // it outlives this terminal
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // why it ended is in its log
		close(ended)
	}()
	for {
		if _, err := node.Command(c.dir, "true"); err == nil {
			break
		}
		select {
		case <-ended:
			text, _ := os.ReadFile(log.Name()) // empty, at worst
			return fmt.Errorf("the node does not start: %s", strings.TrimSpace(string(text)))
		case <-time.After(pause):
		}
	}
	fmt.Fprintf(c.stdout, "The node is up after %.1f s, with its files in %s.\n", time.Since(began).Seconds(), c.dir)
	return nil
}

// serve is the node: it runs inside, until it is stopped.
func (c *command) serve(images []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
	defer stop()
	n, err := node.Start(ctx, node.Options{Version: c.kubernetes})
	if err != nil {
		fmt.Fprintln(c.stderr, err)
		return 1
	}
	for _, image := range images {
		if err == nil {
			err = n.Import(ctx, image)
		}
	}
	if err == nil {
		err = n.Open()
	}
	if err == nil {
		<-ctx.Done()
	}
	if stopped := n.Stop(); err == nil {
		err = stopped
	}
	if err != nil {
		fmt.Fprintln(c.stderr, err)
		return 1
	}
	return 0
}
