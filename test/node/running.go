package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/internal/hostfile"
)

// running is what others have to know of a node that runs: two processes, by
// the numbers that they have outside.
type running struct {
	// Outside is the process that called Isolate, Init the first one inside.
	Outside, Init int
}

const runningFile = "running.json"

func (r running) write(dir string) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, runningFile), text, 0o600)
}

// ErrDown says that no node runs in a directory.
var ErrDown = errors.New("no node runs there")

// find returns the processes of the node that runs in dir.
func find(dir string) (running, error) {
	l, err := lock(dir)
	if err == nil {
		l.Close()
		return running{}, fmt.Errorf("%s: %w", dir, ErrDown)
	}
	if !errors.Is(err, hostfile.ErrHeld) {
		return running{}, err
	}
	// Who holds the lock is alive, and so are its numbers.
	var r running
	text, err := os.ReadFile(filepath.Join(dir, runningFile))
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(text, &r)
}

// lock keeps a second node away from a directory.
func lock(dir string) (*hostfile.Lock, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	l, err := hostfile.TryLock(filepath.Join(dir, "lock"))
	if err != nil {
		return nil, fmt.Errorf("%s is the directory of a node that runs: %w", dir, err)
	}
	return l, nil
}

// Command is a command that runs inside of the node that runs in dir, with its
// programs and its kubeconfig.
func Command(dir string, argv ...string) (*exec.Cmd, error) {
	r, err := find(dir)
	if err != nil {
		return nil, err
	}
	env, err := os.ReadFile(filepath.Join(dir, envFile))
	if err != nil {
		return nil, fmt.Errorf("the node in %s is not up yet: %w", dir, err)
	}
	work, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("nsenter", append([]string{
		"--target", strconv.Itoa(r.Init), "--mount", "--pid", "--net", "--ipc", "--uts", "--wdns=" + work, "--",
	}, argv...)...)
	return cmd, json.Unmarshal(env, &cmd.Env)
}

// envFile has the environment of Command. It is there once the node is up.
const envFile = "env.json"

// Open lets Command in, until the node ends.
func (n *Node) Open() error {
	text, err := json.Marshal(n.Env())
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(n.dir, envFile), text, 0o600)
}

// downPatience is how long the parts of a node may take to end.
const downPatience = 60 * time.Second

// Down ends the node that runs in dir, and returns when all of it is gone.
func Down(dir string) error {
	r, err := find(dir)
	if err != nil {
		return err
	}
	signal := unix.SIGTERM
	for range 2 {
		if err := unix.Kill(r.Outside, signal); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
		for deadline := time.Now().Add(downPatience); time.Now().Before(deadline); time.Sleep(pause) {
			if l, err := lock(dir); err == nil {
				l.Close()
				return nil
			}
		}
		signal = unix.SIGKILL
	}
	return fmt.Errorf("the node in %s does not end", dir)
}
