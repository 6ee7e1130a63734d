package bridge_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/kubeletdir"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// A lostOne is a node that has lost the record of one of its two volumes. Two pods have pv1,
// and one has pv2.
type lostOne struct {
	*node
	name  string
	reads bool            // the API server answers
	has   map[string]bool // the directories of pods that have a volume
}

// ofVolume makes of what is for pv1 what is for volume i.
func ofVolume(s string, i int) string {
	return strings.NewReplacer("pv1", fmt.Sprint("pv", i), `"h1"`, fmt.Sprintf(`"h%d"`, i)).Replace(s)
}

func newLostOne(t *testing.T, lost int, device, reads bool) *lostOne {
	t.Helper()
	l := &lostOne{node: newNode(t), name: fmt.Sprintf("h%d lost, device %t, reads %t", lost, device, reads), reads: reads, has: map[string]bool{}}
	for i := 1; i <= 2 && device; i++ {
		l.succeed("attach", ofVolume(options, i), "node-1")
		l.succeed("mountdevice", ofVolume(l.deviceDir(), i), "csi:h1", ofVolume(options, i))
	}
	for pod, i := range map[string]int{"p1": 1, "p2": 1, "p3": 2} {
		dir := ofVolume(l.podDir(pod), i)
		l.succeed("mount", dir, ofVolume(options, i))
		l.has[dir] = true
	}
	if err := l.store.Delete(csivol.Key{Driver: "csi.example.com", Handle: fmt.Sprint("h", lost)}); err != nil {
		t.Fatal(err)
	}
	l.restart()
	return l
}

func (l *lostOne) restart() {
	l.start("boot-1")
	l.bridge.Grace = 1
	if l.reads {
		l.bridge.Drivers.All[0].Read = func(_ context.Context, name string) (*csivol.Volume, error) {
			return &csivol.Volume{FlexDriver: flexDriver, Driver: "csi.example.com", Handle: "h" + strings.TrimPrefix(name, "pv"), Name: name, FSType: "ext4"}, nil
		}
	}
}

// try makes a callout for volume i, and checks what it promises.
func (l *lostOne) try(i int, args ...string) {
	l.t.Helper()
	if l.call(args...).Status != flex.StatusSuccess {
		l.keeps(args)
		return
	}
	handle := fmt.Sprint("h", i)
	switch args[0] {
	case "unmount":
		target, _ := kubeletdir.TargetPath(args[1])
		if l.mounts.mounted[args[1]] || l.mounts.mounted[target] {
			l.t.Errorf("%s: %v succeeded, and it is mounted", l.name, args)
		}
		delete(l.has, args[1])
		delete(l.driver.published, target) // the driver need not hear of it
	case "unmountdevice", "detach":
		if at := l.driver.staged[handle]; at != "" {
			l.t.Errorf("%s: %v succeeded, and the volume is staged at %s", l.name, args, at)
		}
	}
	l.keeps(args)
}

// keeps checks that each pod has what it had, and that the driver was asked for nothing that harms.
func (l *lostOne) keeps(after any) {
	l.t.Helper()
	for dir := range l.has {
		handle := "h" + strings.TrimPrefix(filepath.Base(dir), "pv")
		if target, _ := kubeletdir.TargetPath(dir); !l.mounts.mounted[dir] || l.driver.published[target] == "" {
			l.t.Errorf("%s: after %v the pod has lost %s", l.name, after, dir)
		}
		if l.driver.staged[handle] == "" || l.driver.attached[handle] == "" {
			l.t.Errorf("%s: after %v %s is staged %v, attached %v", l.name, after, handle, l.driver.staged, l.driver.attached)
		}
	}
	if len(l.driver.harm) > 0 {
		l.t.Errorf("%s: after %v the driver was asked: %v", l.name, after, l.driver.harm)
		l.driver.harm = nil
	}
}

// TestOneLostRecordOfTwo: the record of one volume is lost, and that of another one is there.
// Whatever the kubelet calls first, and after each unmount, neither volume is unstaged under a
// mount nor detached under a stage, and no Success is false. Detach of a volume without a record
// succeeded while it was staged.
func TestOneLostRecordOfTwo(t *testing.T) {
	for _, lost := range []int{1, 2} {
		for _, device := range []bool{false, true} {
			for _, reads := range []bool{false, true} {
				newLostOne(t, lost, device, reads).goes(device, "p3", "p2", "p1")
				l := newLostOne(t, lost, device, reads)
				l.end(device)
				l.goes(device, "p2", "p3", "p1")
				l = newLostOne(t, lost, device, reads)
				dir := ofVolume(l.podDir("p4"), lost)
				l.succeed("mount", dir, ofVolume(options, lost))
				l.try(lost, "unmount", dir)
				l.goes(device, "p1", "p3", "p2")
				l.empty() // it was recorded again
			}
		}
	}
}

// goes has pods go, and tries to end the volumes after the first and the last.
func (l *lostOne) goes(device bool, pods ...string) {
	l.t.Helper()
	for _, pod := range pods {
		i := 1
		if pod == "p3" {
			i = 2
		}
		l.try(i, "unmount", ofVolume(l.podDir(pod), i))
		if pod != pods[1] {
			l.end(device)
		}
	}
}

// end tries to end both volumes, and restarts the daemon.
func (l *lostOne) end(device bool) {
	l.t.Helper()
	for i := 1; i <= 2 && device; i++ {
		for _, args := range [][]string{{"detach", "pv1", "node-1"}, {"unmountdevice", l.deviceDir()}, {"detach", "pv1", "node-1"}} {
			args[1] = ofVolume(args[1], i)
			l.try(i, args...)
		}
	}
	l.reconcile()
	l.keeps("the reconciler")
	l.restart()
}
