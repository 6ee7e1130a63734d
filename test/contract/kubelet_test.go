package contract

import (
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/volumemanager/cache"
	"k8s.io/kubernetes/pkg/kubelet/volumemanager/reconciler"
	"k8s.io/kubernetes/pkg/volume/util/hostutil"
	"k8s.io/kubernetes/pkg/volume/util/operationexecutor"
)

// kubelet is the kubelet's own volume reconciler at work on a node: pods are
// added and removed, and it calls the driver when it sees fit.
type kubelet struct {
	n        *node
	dsw      cache.DesiredStateOfWorld
	podsRead atomic.Bool // all pods are known, so that unmounts may begin
	stop     chan struct{}
	stopped  chan struct{}
}

// startKubelet starts the reconciler with the pods that exist already. It
// first reconstructs, from the directories, what an earlier one has mounted.
func (n *node) startKubelet(pods ...podVolume) *kubelet {
	n.t.Helper()
	k := &kubelet{
		n:       n,
		dsw:     newDesiredState(n.mgr),
		stop:    make(chan struct{}),
		stopped: make(chan struct{}),
	}
	host := n.mgr.Host.(*host)
	loop := reconciler.NewReconciler(
		n.client, true, 50*time.Millisecond, attachTimeout, nodeName, k.dsw, n.asw, k.podsRead.Load,
		n.executor, host.mounter, hostutil.NewHostUtil(), n.mgr, n.podsDir(),
	)
	go func() {
		defer close(k.stopped)
		runReconciler(loop, k.stop)
	}()
	for _, p := range pods {
		k.add(p.pod, p.vol)
	}
	k.podsRead.Store(true)
	n.t.Cleanup(k.end)
	return k
}

type podVolume struct {
	pod *v1.Pod
	vol *vol
}

// end stops the reconciler and waits for what it has begun.
func (k *kubelet) end() {
	k.n.t.Helper()
	select {
	case <-k.stop:
	default:
		close(k.stop)
	}
	<-k.stopped
	eventually(k.n.t, "the kubelet is idle", func() bool { return len(k.n.drivers()) == 0 })
}

// add is a pod that appears on the node.
func (k *kubelet) add(pod *v1.Pod, v *vol) {
	k.n.t.Helper()
	k.n.must(desire(k.dsw, pod, v.spec))
	var names []v1.UniqueVolumeName
	for _, todo := range k.dsw.GetVolumesToMount() {
		names = append(names, todo.VolumeName)
	}
	k.dsw.MarkVolumesReportedInUse(names) // the node's status says so
}

// remove is a pod that ends.
func (k *kubelet) remove(pod *v1.Pod, v *vol) {
	k.n.t.Helper()
	k.dsw.DeletePodFromVolume(podName(pod), v.uniqueName(pod))
}

// ready reports whether the kubelet would start the pod's containers.
func (k *kubelet) ready(pod *v1.Pod, v *vol) bool {
	return k.n.volumeState(v, pod) == operationexecutor.VolumeMounted
}

// gone reports whether the kubelet has forgotten the pod's volume and its
// directory is no more.
func (k *kubelet) gone(pod *v1.Pod, v *vol) bool {
	return k.n.volumeState(v, pod) == operationexecutor.VolumeNotMounted && !exists(v.dir(pod))
}

// idle reports whether the kubelet knows of no volume at all.
func (k *kubelet) idle() bool { return len(k.n.asw.GetAttachedVolumes()) == 0 }
