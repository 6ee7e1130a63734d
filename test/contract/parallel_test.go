package contract

import (
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// TestPodsShareAVolumeInParallel: with attach:false the kubelet mounts and
// unmounts one volume for several pods at the same time. Each pod sees the
// volume as long as it has it, and in the end nothing is left.
func TestPodsShareAVolumeInParallel(t *testing.T) {
	const pods, rounds = 4, 12
	for _, k := range []kind{imageExt4(), directory(), memory(), csiExt4()} {
		t.Run(k.name, func(t *testing.T) {
			n := k.newNode(t, false)
			v := n.newVolume(k, "pv-1")
			var wg sync.WaitGroup
			for i := range pods {
				wg.Go(func() {
					for round := range rounds {
						n.onePodLife(v, newPod(fmt.Sprintf("%d-%d", i, round)))
					}
				})
			}
			wg.Wait()
			v.checkNothingLeft()
			if !overlap(n.runner.made("mount", "unmount")) {
				t.Error("no two calls ran at the same time: the test has lost its grip")
			}
			if got := len(n.runner.made("mount")); got != pods*rounds {
				t.Errorf("%d mounts, want %d", got, pods*rounds)
			}
		})
	}
}

// onePodLife mounts, writes, reads and unmounts as one pod. It reports with
// Errorf only, because it runs in a goroutine of its own.
func (n *node) onePodLife(v *vol, pod *v1.Pod) {
	if err := n.mounter(v, pod).SetUp(noArgs()); err != nil {
		n.t.Errorf("pod %s: %v", pod.Name, err)
		return
	}
	file := filepath.Join(v.dir(pod), pod.Name)
	n.writeFile(file, pod.Name)
	n.checkFile(file, pod.Name)
	if at := mountsAt(n.t, v.dir(pod)); len(at) != 1 {
		n.t.Errorf("pod %s: mounts %+v", pod.Name, at)
	}
	if err := n.unmounter(v, pod).TearDown(); err != nil {
		n.t.Errorf("pod %s: %v", pod.Name, err)
	}
}

// overlap reports whether two of the calls ran at the same time.
func overlap(calls []*call) bool {
	slices.SortFunc(calls, func(a, b *call) int { return a.start.Compare(b.start) })
	for i := 1; i < len(calls); i++ {
		if calls[i].start.Before(calls[i-1].end) {
			return true
		}
	}
	return false
}

// TestKubeletSerialisesSetUpsOfAnAttachedVolume: with attach:true the set-ups
// of one volume never overlap, and the device is unmounted after the last pod.
func TestKubeletSerialisesSetUpsOfAnAttachedVolume(t *testing.T) {
	forDisks(t, onlyAttached(), testSerialisedSetUps)
}

func testSerialisedSetUps(t *testing.T, n *node, v *vol) {
	k := n.startKubelet()
	var pods []*v1.Pod
	for i := range 4 {
		pods = append(pods, newPod(fmt.Sprint(i)))
		k.add(pods[i], v)
	}
	eventually(t, "all pods have the volume", func() bool {
		return !slices.ContainsFunc(pods, func(p *v1.Pod) bool { return !k.ready(p, v) })
	})
	n.writeFile(filepath.Join(v.dir(pods[0]), "file"), "x")
	for _, pod := range pods {
		n.checkFile(filepath.Join(v.dir(pod), "file"), "x")
		k.remove(pod, v)
	}
	eventually(t, "the volume is forgotten", k.idle)
	n.detach(v)
	v.checkNothingLeft()

	if overlap(n.runner.made("waitforattach", "mountdevice", "mount")) {
		t.Error("set-ups overlap, so this contract has changed")
	}
	for command, want := range map[string]int{"mountdevice": 1, "mount": 4, "unmount": 4, "unmountdevice": 1} {
		if got := len(n.runner.made(command)); got != want {
			t.Errorf("%d calls of %s, want %d", got, command, want)
		}
	}
	unmounts, device := n.runner.made("unmount"), n.runner.last(t, "unmountdevice")
	if slices.ContainsFunc(unmounts, func(c *call) bool { return device.start.Before(c.end) }) {
		t.Error("the device was unmounted while a pod had the volume")
	}
}

// TestPodsComeAndGoUnderAKubelet lets its reconciler, with its back-off and its
// parallel operations, run two volumes for pods that overlap.
func TestPodsComeAndGoUnderAKubelet(t *testing.T) {
	others := map[string]kind{imageExt4().name: directory(), deviceExt4().name: directory(), csiExt4().name: csiExt4()}
	forDisks(t, bothModes(), func(t *testing.T, n *node, v *vol) {
		second := n.newVolume(others[v.kind.name], "pv-2")
		n.attach(second)
		testComingAndGoing(t, n, []*vol{v, second})
	})
}

func testComingAndGoing(t *testing.T, n *node, volumes []*vol) {
	k := n.startKubelet()
	var before *v1.Pod
	for i := range 5 {
		pod := newPod(fmt.Sprint(i))
		for _, v := range volumes {
			k.add(pod, v)
		}
		for _, v := range volumes {
			eventually(t, "mounted", func() bool { return k.ready(pod, v) })
			n.writeFile(filepath.Join(v.dir(pod), pod.Name), "x")
			if before != nil {
				n.checkFile(filepath.Join(v.dir(pod), before.Name), "x")
				k.remove(before, v)
			}
		}
		before = pod
	}
	for _, v := range volumes {
		k.remove(before, v)
	}
	eventually(t, "all is forgotten", k.idle)
	for _, v := range volumes {
		n.detach(v)
	}
	for _, v := range volumes {
		v.checkNothingLeft()
	}
	for _, c := range n.runner.made() {
		if a := c.answer(t); a.Status == "Failure" {
			t.Errorf("%s failed: %s", c.command(), a.Message)
		}
	}
}
