package contract

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/kubelet/volumemanager/cache"
	"k8s.io/kubernetes/pkg/volume"
	volumeutil "k8s.io/kubernetes/pkg/volume/util"
	"k8s.io/kubernetes/pkg/volume/util/hostutil"
	"k8s.io/kubernetes/pkg/volume/util/operationexecutor"
	volumetypes "k8s.io/kubernetes/pkg/volume/util/types"
)

// attachTimeout is what the kubelet gives waitforattach, 10 minutes, made
// short enough for a test to see it expire (volume_manager.go, waitForAttachTimeout).
const attachTimeout = patience

func (n *node) plugin() volume.VolumePlugin {
	n.t.Helper()
	p, err := n.mgr.FindPluginByName(driverName)
	n.must(err)
	return p
}

// attachable returns the plugin, which must have attach:true.
func (n *node) attachable() volume.AttachableVolumePlugin {
	n.t.Helper()
	p, ok := n.plugin().(volume.AttachableVolumePlugin)
	if !ok {
		n.t.Fatal("the plugin is not attachable")
	}
	return p
}

func (n *node) attacher() volume.Attacher {
	n.t.Helper()
	a, err := n.attachable().NewAttacher()
	n.must(err)
	return a
}

func (n *node) detacher() volume.Detacher {
	n.t.Helper()
	d, err := n.attachable().NewDetacher()
	n.must(err)
	return d
}

func (n *node) mounter(v *vol, pod *v1.Pod) volume.Mounter {
	n.t.Helper()
	m, err := newMounter(n.plugin(), v.spec, pod)
	n.must(err)
	return m
}

func (n *node) unmounter(v *vol, pod *v1.Pod) volume.Unmounter {
	n.t.Helper()
	u, err := n.plugin().NewUnmounter(v.spec.Name(), pod.UID)
	n.must(err)
	return u
}

// uniqueName is the kubelet's key of the volume: with attach:false one per pod.
func (v *vol) uniqueName(pod *v1.Pod) v1.UniqueVolumeName {
	v.n.t.Helper()
	plugin := v.n.plugin()
	if _, ok := plugin.(volume.AttachableVolumePlugin); !ok {
		return volumeutil.GetUniqueVolumeNameFromSpecWithPod(podName(pod), plugin, v.spec)
	}
	name, err := volumeutil.GetUniqueVolumeNameFromSpec(plugin, v.spec)
	v.n.must(err)
	return name
}

func podName(pod *v1.Pod) volumetypes.UniquePodName { return volumetypes.UniquePodName(pod.UID) }

// attach does what kube-controller-manager does before the node may mount: it
// calls the driver, if it attaches, and writes the node's status.
func (n *node) attach(v *vol) {
	n.t.Helper()
	if _, ok := n.plugin().(volume.AttachableVolumePlugin); !ok {
		return
	}
	device, err := n.attacher().Attach(v.spec, nodeName)
	n.must(err)
	n.editNode(func(s *v1.NodeStatus) {
		name := v.uniqueName(nil)
		s.VolumesAttached = append(s.VolumesAttached, v1.AttachedVolume{Name: name, DevicePath: device})
	})
}

// detach is the reverse of attach.
func (n *node) detach(v *vol) {
	n.t.Helper()
	if _, ok := n.plugin().(volume.AttachableVolumePlugin); !ok {
		return
	}
	n.must(n.detacher().Detach(v.spec.Name(), nodeName))
	name := v.uniqueName(nil)
	n.editNode(func(s *v1.NodeStatus) {
		s.VolumesAttached = slices.DeleteFunc(s.VolumesAttached, func(a v1.AttachedVolume) bool { return a.Name == name })
	})
}

func (n *node) editNode(edit func(*v1.NodeStatus)) {
	n.t.Helper()
	nodes := n.client.CoreV1().Nodes()
	node, err := nodes.Get(context.Background(), string(nodeName), metav1.GetOptions{})
	n.must(err)
	edit(&node.Status)
	_, err = nodes.UpdateStatus(context.Background(), node, metav1.UpdateOptions{})
	n.must(err)
}

// toMount is what the kubelet's reconciler asks of the operation executor.
func (n *node) toMount(v *vol, pod *v1.Pod) operationexecutor.VolumeToMount {
	n.t.Helper()
	_, attachable := n.plugin().(volume.AttachableVolumePlugin)
	todo := operationexecutor.VolumeToMount{
		VolumeName:              v.uniqueName(pod),
		PodName:                 podName(pod),
		VolumeSpec:              v.spec,
		Pod:                     pod,
		PluginIsAttachable:      attachable,
		PluginIsDeviceMountable: attachable,
		ReportedInUse:           true,
		MountRequestTime:        time.Now(),
	}
	nameAndSize(&todo, "data", v.pv.Spec.Capacity[v1.ResourceStorage])
	return todo
}

// verifyAttached tells the kubelet's picture of the world that the volume is
// attached, as the kubelet does before it mounts.
func (n *node) verifyAttached(v *vol, pod *v1.Pod) operationexecutor.VolumeToMount {
	n.t.Helper()
	todo := n.toMount(v, pod)
	op, err := verifyOperation(n.gen, todo, n.asw)
	n.must(err)
	_, err = op.Run()
	n.must(err)
	attached, ok := n.attachedVolume(todo.VolumeName)
	if !ok {
		n.t.Fatalf("%s is not attached", todo.VolumeName)
	}
	todo.DevicePath = attached.DevicePath
	return todo
}

// attachedVolume finds what the kubelet believes is attached.
func (n *node) attachedVolume(name v1.UniqueVolumeName) (cache.AttachedVolume, bool) {
	for _, attached := range n.asw.GetAttachedVolumes() {
		if attached.VolumeName == name {
			return attached, true
		}
	}
	return cache.AttachedVolume{}, false
}

// mount runs the kubelet's whole operation for one pod: waitforattach,
// mountdevice if needed, mount, expandfs if needed.
func (n *node) mount(v *vol, pod *v1.Pod) error {
	n.t.Helper()
	op := n.gen.GenerateMountVolumeFunc(attachTimeout, n.verifyAttached(v, pod), n.asw, false)
	_, err := op.Run()
	return err
}

func (n *node) unmount(v *vol, pod *v1.Pod) error {
	n.t.Helper()
	m, err := n.mountedVolume(v, pod)
	if err != nil {
		return err
	}
	op, err := n.gen.GenerateUnmountVolumeFunc(m, n.asw, n.podsDir())
	n.must(err)
	_, err = op.Run()
	return err
}

// mountedVolume finds what the kubelet believes is, or may be, mounted.
func (n *node) mountedVolume(v *vol, pod *v1.Pod) (operationexecutor.MountedVolume, error) {
	for _, m := range n.asw.GetAllMountedVolumes() {
		if m.PodName == podName(pod) && m.InnerVolumeSpecName == v.spec.Name() {
			return m.MountedVolume, nil
		}
	}
	return operationexecutor.MountedVolume{}, fmt.Errorf("the kubelet knows no mount of %s for %s", v.spec.Name(), pod.Name)
}

func (n *node) unmountDevice(v *vol) error {
	n.t.Helper()
	if _, ok := n.plugin().(volume.DeviceMountableVolumePlugin); !ok {
		return nil
	}
	attached, ok := n.attachedVolume(v.uniqueName(nil))
	if !ok {
		return errors.New("the kubelet does not know the volume")
	}
	op, err := n.gen.GenerateUnmountDeviceFunc(attached.AttachedVolume, n.asw, hostutil.NewHostUtil())
	n.must(err)
	_, err = op.Run()
	return err
}

// takeDown ends a volume as a kubelet and the controller do when no pod wants it.
func (n *node) takeDown(v *vol, pods ...*v1.Pod) {
	n.t.Helper()
	for _, pod := range pods {
		n.must(n.unmount(v, pod))
	}
	n.must(n.unmountDevice(v))
	n.detach(v)
	v.checkNothingLeft()
}

func (n *node) podsDir() string { return n.root + "/pods" }

func (n *node) volumeState(v *vol, pod *v1.Pod) operationexecutor.VolumeMountState {
	n.t.Helper()
	return n.asw.GetVolumeMountState(v.uniqueName(pod), podName(pod))
}

func (n *node) checkVolumeState(v *vol, pod *v1.Pod, want operationexecutor.VolumeMountState) {
	n.t.Helper()
	if got := n.volumeState(v, pod); got != want {
		n.t.Errorf("for %s the kubelet believes %s, want %s", pod.Name, got, want)
	}
}

func noArgs() volume.MounterArgs { return volume.MounterArgs{} }

func (n *node) deviceUnmounter() volume.DeviceUnmounter {
	n.t.Helper()
	p, ok := n.plugin().(volume.DeviceMountableVolumePlugin)
	if !ok {
		n.t.Fatal("the plugin mounts no devices")
	}
	u, err := p.NewDeviceUnmounter()
	n.must(err)
	return u
}
