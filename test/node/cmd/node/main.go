// Command node starts a Kubernetes of one node on this machine and leaves it
// there to play with:
//
//	node --dir DIR up [--kubernetes 1.36] [IMAGE.tar …]
//	node --dir DIR shell
//	node --dir DIR kubectl get pods -A
//	node --dir DIR down
//
// make node-up and the like call it. See test/node/README.md.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/flex2csi/flex2csi/test/node"
)

func main() {
	c := command{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr}
	os.Exit(c.run(os.Args[1:]))
}

type command struct {
	stdin          io.Reader
	stdout, stderr io.Writer

	dir, kubernetes string
}

func (c *command) run(args []string) int {
	flags := flag.NewFlagSet("node", flag.ContinueOnError)
	flags.SetOutput(c.stderr)
	flags.StringVar(&c.dir, "dir", filepath.Join(os.TempDir(), "flex2csi-node"), "`directory` of the node's files")
	flags.StringVar(&c.kubernetes, "kubernetes", "", "`release` of Kubernetes, 1.36 for instance; empty: the newest")
	if flags.Parse(args) != nil {
		return 2
	}
	var err error
	c.dir, err = filepath.Abs(c.dir)
	if err == nil {
		switch rest := flags.Args(); flags.Arg(0) {
		case "up":
			err = c.up(rest[1:])
		case "serve": // up calls it
			return node.Isolate(c.dir, c.stderr, func() int { return c.serve(rest[1:]) })
		case "down":
			err = c.down()
		case "shell":
			err = c.inside("env", "TERM="+os.Getenv("TERM"), "bash", "--rcfile", "/dev/null")
		case "kubectl":
			err = c.inside(rest...)
		default:
			err = errors.New("usage: node [--dir DIR] [--kubernetes RELEASE] up [IMAGE.tar …] | shell | kubectl … | down")
		}
	}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return exit.ExitCode()
	case err != nil:
		fmt.Fprintln(c.stderr, "node:", err)
		return 1
	}
	return 0
}

func (c *command) down() error {
	err := node.Down(c.dir)
	if errors.Is(err, node.ErrDown) {
		fmt.Fprintf(c.stdout, "there is no node in %s\n", c.dir)
		return os.RemoveAll(c.dir)
	}
	if err != nil {
		return err
	}
	if err := os.RemoveAll(c.dir); err != nil {
		return err
	}
	fmt.Fprintln(c.stdout, "The node is gone.")
	return nil
}

// inside runs a command in the node.
func (c *command) inside(argv ...string) error {
	cmd, err := node.Command(c.dir, argv...)
	if errors.Is(err, node.ErrDown) {
		return fmt.Errorf("%w: make node-up starts one", err)
	}
	if err != nil {
		return err
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.stdin, c.stdout, c.stderr
	return cmd.Run()
}
