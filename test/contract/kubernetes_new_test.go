//go:build !k8s124

package contract

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/volumemanager/cache"
	"k8s.io/kubernetes/pkg/kubelet/volumemanager/reconciler"
	"k8s.io/kubernetes/pkg/volume"
	"k8s.io/kubernetes/pkg/volume/flexvolume"
	volumeutil "k8s.io/kubernetes/pkg/volume/util"
	"k8s.io/kubernetes/pkg/volume/util/operationexecutor"
	volumetypes "k8s.io/kubernetes/pkg/volume/util/types"
	"k8s.io/mount-utils"
	"k8s.io/utils/exec"
)

// Here is what differs from kubernetes_old_test.go: behavior, and signatures.

const (
	seesBinds       = true // of directories, as mounts: it asks statx
	takesDeadMounts = true // for mounts: it asks the kernel, not the FUSE server

	panicsAtSecondInline = true // volume of one name: it wants a PersistentVolume
)

func newClientset(node *v1.Node) *fake.Clientset { return fake.NewClientset(node) }

func newProber(ctx context.Context, pluginDir string, runner exec.Interface) volume.DynamicPluginProber {
	return flexvolume.GetDynamicPluginProber(ctx, pluginDir, runner)
}

func (h *host) GetMounter() mount.Interface { return h.mounter }

func newMounter(plugin volume.VolumePlugin, spec *volume.Spec, pod *v1.Pod) (volume.Mounter, error) {
	return plugin.NewMounter(spec, pod)
}

func reconstruct(plugin volume.VolumePlugin, name, path string) (*volume.Spec, error) {
	volume, err := plugin.ConstructVolumeSpec(name, path)
	return volume.Spec, err
}

func newDesiredState(mgr *volume.VolumePluginMgr) cache.DesiredStateOfWorld {
	return cache.NewDesiredStateOfWorld(mgr, volumeutil.NewFakeSELinuxLabelTranslator())
}

func desire(dsw cache.DesiredStateOfWorld, pod *v1.Pod, spec *volume.Spec) error {
	_, err := dsw.AddPodToVolume(klog.Background(), podName(pod), pod, spec, "data", "", nil)
	return err
}

func desireSize(dsw cache.DesiredStateOfWorld, name v1.UniqueVolumeName, size resource.Quantity) {
	dsw.UpdatePersistentVolumeSize(name, size)
}

func runReconciler(loop reconciler.Reconciler, stop <-chan struct{}) {
	loop.Run(context.Background(), stop)
}

func nameAndSize(todo *operationexecutor.VolumeToMount, name string, size resource.Quantity) {
	todo.OuterVolumeSpecNames, todo.DesiredPersistentVolumeSize = []string{name}, size
}

func verifyOperation(
	gen operationexecutor.OperationGenerator, todo operationexecutor.VolumeToMount, asw cache.ActualStateOfWorld,
) (volumetypes.GeneratedOperations, error) {
	return gen.GenerateVerifyControllerAttachedVolumeFunc(klog.Background(), todo, nodeName, asw)
}
