package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/test/daemon"
)

const (
	csiName  = "loop.csi.example.com"
	nodeName = "node-1"
	// The Flex drivers; all are the same CSI driver.
	plainDriver  = "faults.example.com/plain"  // attach:false
	deviceDriver = "faults.example.com/device" // attach:true
	directDriver = "faults.example.com/direct" // attach:false, directPublish
	// otherDriver is another CSI driver.
	otherDriver = "faults.example.com/other"
	otherName   = "other.csi.example.com"

	bootIDFile = "/proc/sys/kernel/random/boot_id"

	interval = 200 * time.Millisecond
	// drain is how long a daemon may take to end.
	drain = time.Second
	// patience is far more than anything takes.
	patience = time.Minute
)

// A world is a node with all that is on it.
type world struct {
	plan
	report report

	driver, daemon *process
	other          *process // another CSI driver, in some plays
	volumes        []*volume
	cluster        cluster
	history        history
	calls          callKiller

	mu      sync.Mutex
	kubelet *kubelet // nil: it is not running
	boots   int
}

func (w *world) path(name string) string { return filepath.Join(w.Dir, name) }

// Places of the world.
func (w *world) kubeletDir() string { return w.path("kubelet") }
func (w *world) stateDir() string   { return w.bridge().StateDir() }
func (w *world) socket() string     { return w.bridge().Socket() }
func (w *world) disks() string      { return w.path("disks") }
func (w *world) faultFile() string  { return w.path("faults.json") }
func (w *world) callLog() string    { return w.path("calls") }
func (w *world) endpoint() string   { return w.path("csi.sock") }

// playWorld is the life of a world's process: the plan comes in, the report
// goes out.
func playWorld(in io.Reader, out, log io.Writer) int {
	w := &world{}
	err := json.NewDecoder(in).Decode(&w.plan)
	if err == nil {
		err = w.make()
	}
	if err == nil {
		w.play()
		err = w.end()
	}
	if err != nil {
		w.report.wrong("the world itself: " + err.Error())
	}
	if w.report.broken() {
		fmt.Fprintf(log, "world %s has come to an end:\n%s\n%s\n", w.Name, w.account(), w.keep())
	}
	if err := json.NewEncoder(out).Encode(&w.report); err != nil {
		fmt.Fprintln(log, err)
		return 1
	}
	return 0
}

// make lays out the world and starts its processes.
func (w *world) make() error {
	if err := unix.Mount("world", w.Dir, "tmpfs", 0, "size=2g,mode=0755"); err != nil {
		return fmt.Errorf("mount the world: %w", err)
	}
	for _, dir := range []string{"kubelet/pods", "kubelet/plugins", "state", "disks"} {
		if err := os.MkdirAll(w.path(dir), 0o755); err != nil {
			return err
		}
	}
	// A disk that can be filled.
	if err := unix.Mount("state", w.stateDir(), "tmpfs", 0, "size=1m,mode=0700"); err != nil {
		return fmt.Errorf("mount the disk for the state: %w", err)
	}
	if err := w.boot(); err != nil {
		return err
	}
	if err := unix.Mount(w.path("boot_id"), bootIDFile, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("give the world boots of its own: %w", err)
	}
	if err := w.bridge().Configure(); err != nil {
		return err
	}
	w.driver = &process{command: w.driverCommand, ended: w.driverEnded}
	w.daemon = &process{command: w.daemonCommand, ended: w.daemonEnded}
	if err := w.install(); err != nil {
		return err
	}
	if err := w.makeVolumes(); err != nil {
		return err
	}
	if err := w.driver.start(); err != nil {
		return err
	}
	return w.daemon.start()
}

// boot gives the world a new boot id.
func (w *world) boot() error {
	w.boots++
	id := fmt.Sprintf("00000000-0000-4000-8000-%012d\n", w.boots)
	return os.WriteFile(w.path("boot_id"), []byte(id), 0o644)
}

func (w *world) bridge() *daemon.Daemon {
	d := &daemon.Daemon{Dir: w.Dir, KubeletDir: w.kubeletDir(), NodeName: nodeName}
	for _, name := range []string{plainDriver, deviceDriver, directDriver} {
		more := []string{"fsGroup: File", "volume: {accessMode: options.accessMode}"}
		d.Drivers = append(d.Drivers, daemon.Driver{FlexDriver: name, CSIDriver: csiName, Endpoint: w.endpoint(), ControllerEndpoint: w.endpoint(), More: more})
	}
	d.Drivers = append(d.Drivers, daemon.Driver{FlexDriver: otherDriver, CSIDriver: otherName, Endpoint: w.path("other.sock")})
	return d
}

// otherCommand is another driver, in the plays that have one.
func (w *world) otherCommand() *exec.Cmd {
	cmd := exec.Command(os.Args[0], "--name", otherName, "--node-id", nodeName, "--dir", w.path("other"), "--endpoint", "unix://"+w.path("other.sock"), "--directories", "--volume", "vol-other="+imageSize)
	cmd.Env = append(os.Environ(), envRole+"="+roleDriver)
	return w.logged(cmd, "driver.log")
}

func (w *world) driverCommand() *exec.Cmd {
	cmd := exec.Command(os.Args[0], append([]string{
		"--name", csiName, "--node-id", nodeName, "--dir", w.disks(), "--endpoint", "unix://" + w.endpoint(),
		"--faults", w.faultFile(), "--call-log", w.callLog(),
	}, w.Driver...)...)
	cmd.Env = append(os.Environ(), envRole+"="+roleDriver)
	return w.logged(cmd, "driver.log")
}

func (w *world) daemonCommand() *exec.Cmd {
	return w.logged(exec.Command(w.Daemon, w.bridge().Args("--grace", w.Grace.String(), "--reconcile-interval", interval.String(), "--drain-timeout", drain.String(), "--timeout", w.RPC.String())...), "daemon.log")
}

func (w *world) logged(cmd *exec.Cmd, name string) *exec.Cmd {
	if f, err := os.OpenFile(w.path(name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err == nil {
		cmd.Stdout, cmd.Stderr = f, f
	}
	return cmd
}

// driverEnded: rules may kill it, so nothing but that is its right.
func (w *world) driverEnded(state *os.ProcessState, asked bool) {
	if !asked && state.ExitCode() >= 0 {
		w.report.wrong("the CSI driver ended by itself: " + state.String())
	}
}

// daemonEnded: it never ends by itself.
func (w *world) daemonEnded(state *os.ProcessState, asked bool) {
	w.history.add(daemonGone)
	if !asked || state.ExitCode() > 0 {
		w.report.wrong("the daemon ended by itself: " + state.String() + "\n" + tail(w.path("daemon.log"), 20))
	}
}

// run is round after round of faults and quiet.
func (w *world) run() {
	start := time.Now()
	for round := 0; !w.report.broken() && !w.enough(start); round++ {
		left := w.Duration - time.Since(start)
		if w.Duration == 0 || left > w.Round {
			left = w.Round
		}
		w.oneRound(round, left)
		w.report.count(countRounds)
	}
}

func (w *world) enough(start time.Time) bool {
	return w.Duration > 0 && time.Since(start) >= w.Duration || w.Cycles > 0 && w.report.counted(countCycles) >= w.Cycles
}

// oneRound lets pods come and go under faults, then looks what is left.
func (w *world) oneRound(round int, length time.Duration) {
	ctx, stop := context.WithTimeout(context.Background(), length)
	defer stop()
	w.startKubelet()
	var people sync.WaitGroup
	people.Go(func() { w.makePods(ctx, round) })
	controlPlane, quiet := context.WithCancel(context.Background())
	for _, v := range w.volumes {
		if v.attach() {
			people.Go(func() { w.controlPlane(controlPlane, v) })
		}
	}
	w.makeFaults(ctx, round)
	w.settle()
	quiet()
	people.Wait()
	w.stopKubelet()
}

// end stops the processes in good order.
func (w *world) end() error {
	w.stopKubelet()
	w.daemon.hold(unix.SIGTERM)
	w.driver.hold(unix.SIGTERM)
	return nil
}
