package install

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/flex2csi/flex2csi/test/testenv"
)

const envCaller = "FLEXDRIVER_TEST_CALLER"

// caller is a process that does to a driver what a busy kubelet does.
type caller struct {
	Path   string
	Length time.Duration
}

// calls is what came of it.
type calls struct {
	Done, Failed int
	First        string // the first failure
}

func (c *calls) add(d calls) {
	c.Done, c.Failed = c.Done+d.Done, c.Failed+d.Failed
	if c.First == "" {
		c.First = d.First
	}
}

func callerMain() int {
	var c caller
	if err := json.Unmarshal([]byte(os.Getenv(envCaller)), &c); err != nil {
		return 2
	}
	if err := json.NewEncoder(os.Stdout).Encode(c.run()); err != nil {
		return 1
	}
	return 0
}

func (c caller) run() calls {
	var result calls
	for end := time.Now().Add(c.Length); time.Now().Before(end); result.Done++ {
		caps, err := kubeletInit(c.Path)
		if err == nil && caps != oldConfig().Capabilities && caps != newConfig().Capabilities {
			err = fmt.Errorf("capabilities %+v are of no configuration there was", caps)
		}
		if err != nil {
			result.add(calls{Failed: 1, First: err.Error()})
		}
	}
	return result
}

// TestInstallUnderLoad: no call fails while the driver is replaced again and
// again, by new executables, new configurations, and older ones. Two callers
// are processes of their own; a third is a goroutine next to the installer: its
// forks would inherit a file open for writing.
func TestInstallUnderLoad(t *testing.T) {
	t.Run("disk", func(t *testing.T) {
		o := options(t)
		o.PluginDir = filepath.Join(os.Getenv(envDiskDir), "exec")
		if err := os.Mkdir(o.PluginDir, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(o.PluginDir) })
		underLoad(t, o)
	})
	t.Run("memory", func(t *testing.T) { // fsync takes no time here: many more installations
		testenv.Need(t, "mount")
		underLoad(t, options(t))
	})
}

func underLoad(t *testing.T, o Options) {
	length := 4 * time.Second
	if testing.Short() {
		length = time.Second
	}
	mustInstall(t, o)
	path := liveDir(o.PluginDir, o.Driver).executable(current)

	var group sync.WaitGroup
	results := make([]calls, 3)
	for i := range 2 {
		cmd := child(t, envCaller, caller{Path: path, Length: length})
		var output bytes.Buffer
		cmd.Stdout = &output
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		group.Go(func() {
			if err := cmd.Wait(); err != nil {
				t.Errorf("caller: %v", err)
			} else if err := json.Unmarshal(output.Bytes(), &results[i]); err != nil {
				t.Errorf("caller: %v: %s", err, &output)
			}
		})
	}
	group.Go(func() { results[2] = caller{Path: path, Length: length}.run() })

	installs := installInLoop(t, o, length)
	group.Wait()

	var all calls
	for _, r := range results {
		all.add(r)
	}
	t.Logf("%d calls of init during %d installations in %v: %d failed", all.Done, installs, length, all.Failed)
	if all.Failed > 0 {
		t.Errorf("%d of %d calls failed, the first with: %s", all.Failed, all.Done, all.First)
	}
	if all.Done < 100 || installs < 5 {
		t.Errorf("%d calls and %d installations show nothing", all.Done, installs)
	}
}

// installInLoop returns how often the driver was replaced.
func installInLoop(t *testing.T, o Options, length time.Duration) int {
	t.Helper()
	both := updated(t, o)
	executable, config := o, o
	executable.Executable, config.Config = both.Executable, both.Config
	variants := []Options{both, executable, config, o}

	installs := 0
	for end := time.Now().Add(length); time.Now().Before(end); installs++ {
		report, err := Install(context.Background(), variants[installs%len(variants)])
		if err != nil {
			t.Errorf("installation %d: %v", installs, err)
			break
		}
		if !report.Changed {
			t.Errorf("installation %d changed nothing", installs)
		}
		time.Sleep(2 * time.Millisecond)
	}
	return installs
}
