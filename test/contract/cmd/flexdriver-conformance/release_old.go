//go:build k8s124

package main

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/kubernetes/pkg/volume"
	"k8s.io/kubernetes/pkg/volume/flexvolume"
	"k8s.io/mount-utils"
	"k8s.io/utils/exec"
)

// Here are the signatures that differ from release_new.go.

func fakeClientset() *fake.Clientset { return fake.NewSimpleClientset() }

// newProber returns one that watches for as long as the process lives.
func newProber(_ context.Context, pluginDir string, runner exec.Interface) volume.DynamicPluginProber {
	return flexvolume.GetDynamicPluginProber(pluginDir, runner)
}

func (h *host) GetMounter(string) mount.Interface { return h.mounter }

func newMounter(plugin volume.VolumePlugin, spec *volume.Spec, pod *v1.Pod) (volume.Mounter, error) {
	return plugin.NewMounter(spec, pod, volume.VolumeOptions{})
}
