//go:build k8s124

package contract

import (
	"context"
	"reflect"
	"runtime"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/kubernetes/pkg/kubelet/volumemanager/cache"
	"k8s.io/kubernetes/pkg/kubelet/volumemanager/reconciler"
	"k8s.io/kubernetes/pkg/util/filesystem"
	"k8s.io/kubernetes/pkg/volume"
	"k8s.io/kubernetes/pkg/volume/flexvolume"
	"k8s.io/kubernetes/pkg/volume/util/operationexecutor"
	volumetypes "k8s.io/kubernetes/pkg/volume/util/types"
	"k8s.io/mount-utils"
	"k8s.io/utils/exec"
)

// Here is what differs from kubernetes_new_test.go: behavior, and signatures.

const (
	seesBinds       = false // in one file system: it compares device numbers
	takesDeadMounts = false // for mounts: it fails as soon as stat does

	panicsAtSecondInline = false
)

func newClientset(node *v1.Node) *fake.Clientset { return fake.NewSimpleClientset(node) }

// newProber returns a prober that ends with ctx, as the new ones do. An old one
// watches for as long as its process lives: it would make the plugin directory
// again that a test has removed, and each holds one of a user's 128 inotify
// instances.
func newProber(ctx context.Context, pluginDir string, runner exec.Interface) volume.DynamicPluginProber {
	prober := flexvolume.GetDynamicPluginProber(pluginDir, runner)
	watcher := reflect.ValueOf(prober).Elem().FieldByName("watcher")
	reflect.NewAt(watcher.Type(), watcher.Addr().UnsafePointer()).Elem().
		Set(reflect.ValueOf(endingWatcher{filesystem.NewFsnotifyWatcher(), ctx}))
	return prober
}

// endingWatcher ends with the first event after its context has: at the latest
// that is the removal of the directory it watches.
type endingWatcher struct {
	filesystem.FSWatcher
	ctx context.Context
}

func (w endingWatcher) Init(handle filesystem.FSEventHandler, handleError filesystem.FSErrorHandler) error {
	return w.FSWatcher.Init(until(w.ctx, handle), handleError)
}

func until[Event any](ctx context.Context, handle func(Event)) func(Event) {
	return func(e Event) {
		if ctx.Err() != nil {
			runtime.Goexit() // the watcher's goroutine, which closes it
		}
		handle(e)
	}
}

func (h *host) GetMounter(string) mount.Interface { return h.mounter }

func newMounter(plugin volume.VolumePlugin, spec *volume.Spec, pod *v1.Pod) (volume.Mounter, error) {
	return plugin.NewMounter(spec, pod, volume.VolumeOptions{})
}

func reconstruct(plugin volume.VolumePlugin, name, path string) (*volume.Spec, error) {
	return plugin.ConstructVolumeSpec(name, path)
}

func newDesiredState(mgr *volume.VolumePluginMgr) cache.DesiredStateOfWorld {
	return cache.NewDesiredStateOfWorld(mgr)
}

func desire(dsw cache.DesiredStateOfWorld, pod *v1.Pod, spec *volume.Spec) error {
	_, err := dsw.AddPodToVolume(podName(pod), pod, spec, "data", "")
	return err
}

func desireSize(dsw cache.DesiredStateOfWorld, name v1.UniqueVolumeName, size resource.Quantity) {
	dsw.UpdatePersistentVolumeSize(name, &size)
}

func runReconciler(loop reconciler.Reconciler, stop <-chan struct{}) { loop.Run(stop) }

func nameAndSize(todo *operationexecutor.VolumeToMount, name string, size resource.Quantity) {
	todo.OuterVolumeSpecName, todo.PersistentVolumeSize = name, size
}

func verifyOperation(
	gen operationexecutor.OperationGenerator, todo operationexecutor.VolumeToMount, asw cache.ActualStateOfWorld,
) (volumetypes.GeneratedOperations, error) {
	return gen.GenerateVerifyControllerAttachedVolumeFunc(todo, nodeName, asw)
}
