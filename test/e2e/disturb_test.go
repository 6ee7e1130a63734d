package e2e

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/flex2csi/flex2csi/test/csidriver/calls"
	"github.com/flex2csi/flex2csi/test/csidriver/fault"
)

// disturbances are what happens to nodes.
func disturbances() []scenario {
	return []scenario{
		{"daemon-killed", "kill -9 of the daemon, once in the middle of a call: pods that run, come and go do not notice", daemonKilled},
		{"daemon-missing", "no daemon: pods that run keep their volumes, pods that are deleted go, new ones wait, and say for what", daemonMissing},
		{"driver-killed", "node and controller service of the CSI driver die in the middle of calls", driverKilled},
		{"driver-upgraded", "the pods of the CSI drivers are replaced", driverUpgraded},
		{"kubelet-restarted", "kill -9 of the kubelet; pods that are deleted meanwhile go", kubeletRestarted},
		{"kcm-restarted", "kill -9 of kube-controller-manager in the middle of attaching and detaching", kcmRestarted},
		{"api-away", "the API server is away while a pod starts, and the daemon is killed then", apiAway},
		{"force-deleted", "pods that are deleted by force, one while its volume is being staged, leave nothing", forceDeleted},
	}
}

// faults tells a CSI driver what to do wrong; the controller service has rules of
// its own.
func (t *T) faults(d driver, service string, rules ...fault.Rule) {
	t.Helper()
	file := d.storage() + ".faults"
	if service == controllerService {
		file = d.storage() + ".controller.faults"
	}
	t.must(fault.WriteFile(file, rules...))
	t.Cleanup(func() {
		if err := os.Remove(file); !errors.Is(err, os.ErrNotExist) {
			t.check(err)
		}
	})
}

const (
	nodeService       = "node"
	controllerService = "controller"
)

// waitCalled waits until the CSI driver was called for a volume, be the call
// answered or not.
func (t *T) waitCalled(v *volume, method string) {
	t.Helper()
	t.wait("a call of "+method, func() error {
		list, err := v.calls()
		for i := range list {
			if list[i].Method == method {
				return err
			}
		}
		return errors.Join(err, fmt.Errorf("%s has not come", method))
	})
}

func daemonKilled(t *T) {
	t.disturb(func(*load) {
		v := t.volume(disk(), "slow")
		t.faults(v.driver, nodeService, fault.Rule{Method: "NodeStageVolume", Volume: v.handle, Delay: fault.Duration(2 * time.Second), Times: 1})
		pod := t.create(t.newPod("slow", v.at("/data")))
		t.waitCalled(v, "NodeStageVolume")
		t.killDaemon()
		t.waitReady(pod)
		t.wantSh(pod, "echo x > /data/x && cat /data/x", "x")
		t.delete(pod)
	})
}

// nowhere is a label that no node has.
const nowhere = "e2e.example.com/nowhere"

// withoutDaemon has no daemon on the node while something is done.
func (t *T) withoutDaemon(what func()) {
	t.Helper()
	away := fmt.Sprintf(`{"spec":{"template":{"spec":{"nodeSelector":{%q:"yes"}}}}}`, nowhere)
	back := fmt.Sprintf(`{"spec":{"template":{"spec":{"nodeSelector":{%q:null}}}}}`, nowhere)
	sets := t.client.AppsV1().DaemonSets(installed)
	patch := func(body string) error {
		_, err := sets.Patch(t.ctx(), "flex2csi-node", types.MergePatchType, []byte(body), metav1.PatchOptions{})
		return err
	}
	restore := func() {
		t.check(patch(back))
		t.check(t.rolledOut(t.ctx(), installed))
	}
	t.Cleanup(restore)
	t.must(patch(away))
	t.wait("the daemon's end", func() error {
		list, err := t.client.CoreV1().Pods(installed).List(t.ctx(), metav1.ListOptions{LabelSelector: nodeComponent})
		if err == nil {
			err = stillThere(list.Items)
		}
		return err
	})
	what()
	restore()
}

func daemonMissing(t *T) {
	a, b, c := t.volume(disk(), "disk"), t.volume(share(), "share", inline), t.volume(disk(), "late")
	stays := t.witness(t.volume(disk(), "w-disk"), t.volume(share(), "w-share", inline))
	goes := t.start("goes", a.at("/a"), b.at("/b"))
	var waits *corev1.Pod
	t.withoutDaemon(func() {
		t.delete(goes)
		waits = t.create(t.newPod("waits", c.at("/data")))
		t.waitEvent(waits, "flex2csi does not listen at")
		stays.look()
	})
	t.waitReady(waits)
	stays.undisturbed()
	t.delete(waits, stays.pod)
}

// A service of a CSI driver is one of its processes.
type service struct {
	driver
	// name is "node" or "controller".
	name string
	// method is what it dies on: done, and not answered.
	method string
}

func driverKilled(t *T) {
	t.disturb(func(*load) {
		began := time.Now()
		services := []service{
			{disk(), controllerService, "ControllerPublishVolume"},
			{disk(), nodeService, "NodePublishVolume"},
			{share(), nodeService, "NodeUnpublishVolume"},
		}
		for _, s := range services {
			t.faults(s.driver, s.name, fault.Rule{Method: s.method, After: true, Hang: true, Stubborn: true, Times: 1})
		}
		// Whichever comes first holds the pods up that would cause the others.
		for len(services) > 0 {
			at := -1
			t.wait("calls to die on", func() error {
				at = slices.IndexFunc(services, func(s service) bool { return s.isIn(began) })
				if at < 0 {
					return fmt.Errorf("none of %v has come", services)
				}
				return nil
			})
			t.killService(services[at])
			services = slices.Delete(services, at, at+1)
		}
	})
}

// killService kills a service, which by itself cannot: it is the first process of
// its container.
func (t *T) killService(s service) {
	t.Helper()
	pod, err := t.podOf("csi", fmt.Sprintf("driver=%s,part=%s", s.short(), s.name))
	t.must(err)
	pids, err := processes(pod, "--name="+s.csi)
	t.must(err)
	if len(pids) != 1 {
		t.Fatalf("the processes of %s are %v", s.csi, pids)
	}
	t.must(kill(pids[0]))
	t.waitRestarted(pod, "driver")
}

// isIn reports whether the service is in the middle of the call that it is to die
// on.
func (s service) isIn(since time.Time) bool {
	list, err := calls.Read(s.storage() + "." + s.name + ".calls")
	return err == nil && slices.ContainsFunc(list, func(c calls.Call) bool {
		return c.Method == s.method && c.Start.After(since) && !c.Ended()
	})
}

// short is the driver's name in manifests.
func (d driver) short() string { return strings.TrimSuffix(d.csi, ".csi.example.com") }

func driverUpgraded(t *T) {
	t.disturb(func(l *load) {
		for _, what := range []string{"daemonset/disk-node", "daemonset/share-node", "deployment/disk-controller"} {
			out, err := t.kubectl("rollout", "restart", "--namespace", "csi", what)
			t.must(withText(err, out))
		}
		t.must(t.rolledOut(t.ctx(), "csi"))
		l.more(1)
	})
}

func kubeletRestarted(t *T) {
	a, b := t.volume(disk(), "a"), t.volume(attached(), "b")
	deleted := t.start("deleted", a.at("/a"), b.at("/b"))
	forced := t.start("forced", t.volume(share(), "c", inline).at("/c"))
	t.disturb(func(*load) {
		t.node.Kubelet.Kill()
		pods, now := t.client.CoreV1().Pods(t.Namespace), int64(0)
		t.must(pods.Delete(t.ctx(), deleted.Name, metav1.DeleteOptions{}))
		t.must(pods.Delete(t.ctx(), forced.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}))
		t.must(t.node.Kubelet.Start())
		t.waitGone(deleted)
	})
}

func kcmRestarted(t *T) {
	v := t.volume(attached(), "slow")
	slow := func(method string) {
		t.faults(disk(), controllerService, fault.Rule{Method: method, Volume: v.handle, Delay: fault.Duration(2 * time.Second), Times: 1})
	}
	t.disturb(func(*load) {
		slow("ControllerPublishVolume")
		pod := t.create(t.newPod("slow", v.at("/data")))
		t.waitCalled(v, "ControllerPublishVolume")
		t.restartControllerManager()
		t.waitReady(pod)
		slow("ControllerUnpublishVolume")
		t.delete(pod)
		t.waitCalled(v, "ControllerUnpublishVolume")
		t.restartControllerManager()
	})
}

// restartControllerManager restarts kube-controller-manager, and again if it forgot a
// volume, as docs/troubleshooting.md advises. Seen with 1.24: its first detach may come
// before it has probed the FlexVolume drivers, it reports the volume as attached no more,
// and the next pod waits (https://github.com/kubernetes/kubernetes/issues/108869).
func (t *T) restartControllerManager() {
	t.Helper()
	manager := t.node.ControllerManager
	forgotten := func() int {
		log, err := os.ReadFile(manager.Log)
		t.must(err)
		return strings.Count(string(log), `DetachVolume.FindAttachablePluginByName failed for volume \"nil\"`)
	}
	for range 5 {
		before := forgotten()
		t.must(manager.Restart())
		time.Sleep(10 * time.Second) // it does its first pass
		if forgotten() == before {
			return
		}
		t.note("kube-controller-manager forgot a volume: restarted again")
	}
	t.Fatal("kube-controller-manager forgets a volume at each restart")
}

// absence is how long the API server is away: long enough for everybody to notice.
const absence = 5 * time.Second

func apiAway(t *T) {
	v, w := t.volume(disk(), "v"), t.volume(attached(), "w")
	t.disturb(func(*load) {
		pod := t.create(t.newPod("starts", v.at("/v"), w.at("/w")))
		t.waitCalled(v, "ControllerPublishVolume")
		_, daemon := t.daemon()
		t.node.APIServer.Kill()
		t.must(kill(daemon))
		time.Sleep(absence)
		t.must(t.node.APIServer.Start())
		t.waitReady(pod)
		t.must(t.rolledOut(t.ctx(), installed))
		t.delete(pod)
	})
}

func forceDeleted(t *T) {
	v, slow := t.volume(disk(), "data"), t.volume(disk(), "slow")
	now := metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
	pods := t.client.CoreV1().Pods(t.Namespace)
	first := t.start("first", v.at("/data"))
	t.sh(first, "echo from-first > /data/file && sync")
	t.must(pods.Delete(t.ctx(), first.Name, now))
	second := t.start("second", v.at("/data"))
	t.wantSh(second, "cat /data/file", "from-first")

	t.faults(slow.driver, nodeService, fault.Rule{Method: "NodeStageVolume", Volume: slow.handle, Delay: fault.Duration(3 * time.Second), Times: 1})
	early := t.create(t.newPod("early", slow.at("/data")))
	t.waitCalled(slow, "NodeStageVolume")
	t.must(pods.Delete(t.ctx(), early.Name, now))
	t.waitGone(early)
	t.must(pods.Delete(t.ctx(), second.Name, now))
	t.waitGone(second)
}
