package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/flex2csi/flex2csi/test/csidriver/calls"
	"github.com/flex2csi/flex2csi/test/csidriver/fault"
	"github.com/flex2csi/flex2csi/test/demo/screen"
)

// daemonDies shows that pods do not need the daemon, and end without it.
func (b *bridge) daemonDies() {
	b.Part("kill -9 of the daemon")
	disk := volume{handle: "disk-1", fsType: "xfs"}
	pa, pb, pc := b.pod("pod-a"), b.pod("pod-b"), b.pod("pod-c")
	b.midway()
	b.Scene("Running pods do not notice either. New ones have to wait; the reason is in their events.")
	b.kill()
	b.reads(pa, "hello.txt", "hello over CSI")
	b.refused("does not listen", pc+" "+disk.String(), "mount", pc, b.argument(disk))
	b.Scene("But pods can end: after a wait of two seconds, what is mounted for b goes, and a note is left for the daemon.")
	b.unmount(pb)
	b.pendingUnmounts(1)
	b.Scene("It is back: it reads its records and the note, and gives the CSI driver its due.")
	b.serve()
	b.pendingUnmounts(0)
	b.wasAsked("NodeUnpublishVolume")
	b.mountAgain(pc, disk)
	b.reads(pc, "hello.txt", "hello over CSI")
	b.Scene("All pods end, and no pod has the volume any more.")
	b.unmount(pa)
	b.unmount(pc)
	b.released()
	b.wasAsked("NodePublishVolume", "NodeUnpublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume")
	b.noRecords()
}

// midway kills the daemon while it has a call.
func (b *bridge) midway() {
	b.Scene("It dies in the middle of a mount, and is back at once: the call goes on, and the kubelet does not notice.")
	disk, dir := volume{handle: "disk-1", fsType: "xfs"}, b.pod("pod-d")
	if b.Failed != nil {
		return
	}
	// The CSI driver takes its time, once.
	if err := fault.WriteFile(b.node.faults(), fault.Rule{Method: "NodePublishVolume", Hang: true, Times: 1}); err != nil {
		b.Fail("have the CSI driver hang: %w", err)
		return
	}
	type result struct {
		answer
		err error
	}
	done := make(chan result, 1)
	argument := b.argument(disk)
	go func() {
		a, err := b.node.call("mount", dir, argument)
		done <- result{a, err}
	}()
	if err := b.hangs(); err != nil {
		b.Fail("wait for the CSI driver to be at it: %w", err)
		return
	}
	b.kill()
	b.serve()
	r := <-done
	if r.err != nil || r.Status != "Success" {
		b.Fail("the mount should have been answered with Success, and not %s (%w)", r.text, r.err)
		return
	}
	b.count(r.answer)
	b.Screen.Call("disk mount", "pod-d "+disk.String(), string(r.Status), screen.Green, r.took)
	b.shows(dir, "xfs", "rw")
	b.wasAsked("NodePublishVolume", "NodePublishVolume")
	b.unmount(dir)
	b.wasAsked("NodeUnpublishVolume")
}

// hangs returns when the CSI driver has a call that it does not answer.
func (b *bridge) hangs() error {
	for stop := time.Now().Add(20 * time.Second); time.Now().Before(stop); time.Sleep(time.Millisecond) {
		list, err := calls.Read(b.node.callLog())
		if err != nil {
			return err
		}
		if slices.ContainsFunc(list, func(c calls.Call) bool { return c.Method == "NodePublishVolume" && !c.Ended() }) {
			return nil
		}
	}
	return fmt.Errorf("it was not asked for NodePublishVolume within 20 s")
}

func (b *bridge) kill() {
	if b.Failed != nil {
		return
	}
	start := time.Now()
	if err := b.daemon.End(syscall.SIGKILL); err != nil {
		b.Fail("kill the daemon: %w", err)
		return
	}
	b.Screen.Call("kill -9", "flex2csi", "killed", screen.Yellow, time.Since(start))
}

// pendingUnmounts checks the number of pending unmounts, now or in a moment.
func (b *bridge) pendingUnmounts(want int) {
	if b.Failed != nil {
		return
	}
	var found []string
	for stop := time.Now().Add(20 * time.Second); time.Now().Before(stop); time.Sleep(time.Millisecond) {
		if found, _ = filepath.Glob(b.node.stateDir() + "/*.pending-unmount"); len(found) == want {
			break
		}
	}
	var err error
	if len(found) != want {
		err = fmt.Errorf("there are %d", len(found))
	}
	b.Verify(err, "notes", "%d", want)
}
