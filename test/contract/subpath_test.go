package contract

import (
	"os"
	"path/filepath"
	"testing"

	"k8s.io/kubernetes/pkg/volume/util/subpath"
)

// TestSubpathOfAVolume: the kubelet binds a directory of the volume for a
// container. That is one more mount of it, which the kubelet removes before it
// calls unmount.
func TestSubpathOfAVolume(t *testing.T) {
	forDisks(t, bothModes(), func(t *testing.T, n *node, v *vol) {
		pod := newPod("a")
		n.must(n.mount(v, pod))
		n.must(os.Mkdir(filepath.Join(v.dir(pod), "sub"), 0o755))
		path, cleanup, err := n.mgr.Host.(*host).GetSubpather().PrepareSafeSubpath(subpath.Subpath{
			Path: filepath.Join(v.dir(pod), "sub"), VolumeName: v.spec.Name(), VolumePath: v.dir(pod),
			PodDir: filepath.Join(n.podsDir(), string(pod.UID)), ContainerName: "c",
		})
		n.must(err)
		if cleanup != nil {
			defer cleanup()
		}
		n.writeFile(filepath.Join(path, "file"), "x")
		n.checkFile(filepath.Join(v.dir(pod), "sub/file"), "x")
		n.takeDown(v, pod)
	})
}
