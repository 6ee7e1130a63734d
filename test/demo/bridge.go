package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/flex2csi/flex2csi/test/csidriver/calls"
	"github.com/flex2csi/flex2csi/test/daemon"
	"github.com/flex2csi/flex2csi/test/demo/screen"
)

// A bridge is the second half of the story: the same calls, with flex2csi and a
// CSI driver behind them.
type bridge struct {
	*story
	csi, daemon *daemon.Process
	asked       int // calls of the CSI driver that were shown
}

// end ends what runs, whatever way the story goes.
func (b *bridge) end() {
	_ = b.daemon.End(syscall.SIGKILL)
	_ = b.csi.End(syscall.SIGKILL)
}

const (
	csiName = "loop.csi.example.com"
	nodeOf  = "node-1"
)

func (b *bridge) withoutAttach() {
	b.Part("flex2csi: the same driver, but a CSI driver does the work")
	b.Scene("A CSI driver runs on the node, and is known to the kubelet. It has a volume, disk-1.")
	b.startCSI()
	b.Scene("The daemon has to know which FlexVolume driver stands for which CSI driver. It finds the driver by its name; where the controller is, it has to be told.")
	b.serve()
	b.note("drivers: [{flexDriver: " + driverName + ", csiDriver: " + csiName + ", controllerEndpoint: unix://…/csi.sock}]")
	b.Scene("flexdriver is installed as before, and told to hand over its calls.")
	b.people(true, "install", "--backend=csi", "--socket", b.node.socket(), "--state-dir", b.node.stateDir())
	b.init(false)

	disk := volume{handle: "disk-1", fsType: "xfs"}
	pa, pb := b.pod("pod-a"), b.pod("pod-b")
	b.Scene("Pods a and b start.")
	b.mount(pa, disk)
	b.mountAgain(pb, disk)
	b.shows(pa, "xfs", "rw")
	b.shows(pb, "xfs", "rw")
	b.oneLoop()
	b.writes(pa, "hello.txt", "hello over CSI")
	b.reads(pb, "hello.txt", "hello over CSI")
	b.wasAsked("NodeStageVolume", "NodePublishVolume", "NodePublishVolume")
	b.status()
	b.Scene("The claim asks for 600 MiB.")
	b.size(pb, 300*mebi)
	b.expand(pb, disk, 600*mebi, 300*mebi)
	b.size(pa, 600*mebi)
	b.wasAsked("ControllerExpandVolume", "NodeExpandVolume")
}

func (b *bridge) withAttach() {
	b.Part("flex2csi with attach: true — the CSI driver's controller has a say")
	b.Scene("Now the CSI driver wants volumes to be attached, and the kubelet is told so.")
	b.stopBoth()
	b.startCSI("--attach")
	b.serve()
	b.people(true, "install", "--backend=csi", "--attach", "--socket", b.node.socket(), "--state-dir", b.node.stateDir())
	b.init(true)

	disk := volume{handle: "disk-1", fsType: "xfs"}
	argument, device, dir, global := b.argument(disk), "csi:disk-1", b.pod("pod-a"), b.global()
	b.Scene("kube-controller-manager and the kubelet go through all of it.")
	b.call(disk.String()+" "+nodeOf, "attach", argument, nodeOf)
	b.call(device+" '{…}'", "waitforattach", device, argument)
	b.call("global "+device+" '{…}'", "mountdevice", global, device, argument)
	b.mountAgain(dir, disk)
	b.shows(global, "tmpfs", "ro")
	b.note("(A marker: with nothing mounted there the kubelet would not call unmountdevice. The volume is staged where CSI drivers expect it.)")
	b.shows(dir, "xfs", "rw")
	b.reads(dir, "hello.txt", "hello over CSI")
	b.wasAsked("ControllerPublishVolume", "NodeStageVolume", "NodePublishVolume")
	b.Scene("What could lose data is refused, with and without the daemon.")
	b.refused("still in use", "data "+nodeOf, "detach", "data", nodeOf)
	b.kill()
	b.unmount(dir)
	b.refused("does not listen", "global", "unmountdevice", global)
	b.serve()
	b.call("global", "unmountdevice", global)
	b.unseen(global)
	b.released()
	b.call("data "+nodeOf, "detach", "data", nodeOf)
	b.wasAsked("NodeUnpublishVolume", "NodeUnstageVolume", "ControllerUnpublishVolume")
	b.noRecords()
}

// takeDown ends in good order what runs.
func (b *bridge) takeDown() {
	b.Scene("And away with it.")
	b.people(true, "uninstall")
	b.stopBoth()
	if b.Failed != nil {
		return
	}
	list, err := calls.Read(b.node.callLog())
	if left := calls.Leftovers(list); err == nil && len(left) > 0 {
		err = fmt.Errorf("the CSI driver still has: %s", strings.Join(left, ", "))
	}
	b.Verify(err, "balanced", "the CSI driver was asked %d times, and got back all that it gave", len(list))
}

// startCSI starts the CSI driver of the tests.
func (b *bridge) startCSI(flags ...string) {
	self, err := os.Executable()
	if err != nil {
		b.Fail("find this program: %w", err)
	}
	if b.Failed != nil {
		return
	}
	start := time.Now()
	b.csi, err = b.node.start(csiDriver, self, b.node.csiDir()+"/csi.sock", append([]string{
		"--name", csiName, "--dir", b.node.csiDir(),
		"--register", b.node.kubelet, "--node-id", nodeOf, "--volume", "disk-1=300Mi",
		"--call-log", b.node.callLog(), "--faults", b.node.faults(),
	}, flags...)...)
	if err != nil {
		b.Fail("start the CSI driver: %w", err)
		return
	}
	b.Screen.Call(csiDriver+" --volume", strings.Join(append([]string{"disk-1=300Mi", "--register …/kubelet"}, flags...), " "), "started", screen.Green, time.Since(start))
}

// serve starts the daemon.
func (b *bridge) serve() {
	if b.Failed != nil {
		return
	}
	d := b.node.bridge()
	if err := d.Configure(); err != nil {
		b.Fail("configure the daemon: %w", err)
		return
	}
	start := time.Now()
	var err error
	b.daemon, err = b.node.start("flex2csi", b.node.flex2csi, d.Socket(), d.Args()...)
	if err != nil {
		b.Fail("start the daemon: %w", err)
		return
	}
	b.Screen.Call("flex2csi serve", "--config config.yaml --node-name "+nodeOf, "started", screen.Green, time.Since(start))
}

func (b *bridge) stopBoth() {
	for _, p := range []*daemon.Process{b.daemon, b.csi} {
		if b.Failed != nil {
			return
		}
		start := time.Now()
		if err := p.End(syscall.SIGTERM); err != nil {
			b.Fail("stop: %w", err)
			return
		}
		b.Screen.Call("kill -TERM", p.Args[0], "ended", screen.Green, time.Since(start))
	}
}

// wasAsked shows what the CSI driver was asked for since the last time, but
// for questions.
func (b *bridge) wasAsked(want ...string) {
	if b.Failed != nil {
		return
	}
	list, err := calls.Read(b.node.callLog())
	var got []string
	for _, c := range list[min(b.asked, len(list)):] {
		if c.Volume != "" {
			got = append(got, c.Method)
		}
	}
	b.asked = len(list)
	if text := strings.Join(got, ", "); err == nil && text != strings.Join(want, ", ") {
		err = fmt.Errorf("the CSI driver was asked for %s, and not for %s", text, strings.Join(want, ", "))
	}
	b.Verify(err, "over CSI", "%s", strings.Join(got, " → "))
}

// noRecords wants the daemon to remember nothing. The file by which daemons take
// turns stays.
func (b *bridge) noRecords() {
	if b.Failed != nil {
		return
	}
	names, err := files(b.node.stateDir())
	names = slices.DeleteFunc(names, func(name string) bool { return name == "lock" })
	if err == nil && len(names) > 0 {
		err = fmt.Errorf("there are: %s", strings.Join(names, ", "))
	}
	b.Verify(err, "records", "none")
}

// status shows what a person sees of it.
func (b *bridge) status() {
	if b.Failed != nil {
		return
	}
	a, err := b.node.run(b.node.flex2csi, "status", "--socket", b.node.socket(), "--state-dir", b.node.stateDir())
	if err != nil {
		b.Fail("flex2csi status: %w: %s", err, a.text)
		return
	}
	b.Screen.Call("flex2csi status", "", "done", screen.Green, a.took)
	volumes, _, _ := strings.Cut(a.text, "\n\n") // and no more, for lack of room
	for l := range strings.Lines(volumes) {
		b.Line("%s%s", screen.Indent, b.Paint(screen.Dim, screen.Clip(strings.TrimRight(l, "\n"), b.Width-len(screen.Indent))))
	}
}
