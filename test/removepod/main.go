// Program removepod deletes what is left of pods as a kubelet does, with the kubelet's own
// code of one release. Each argument is a directory below pods/<uid>
// (pkg/kubelet/kubelet_volumes.go, cleanupOrphanedPodDirs: all but volumes).
package main

import (
	"fmt"
	"os"

	"k8s.io/kubernetes/pkg/util/removeall"
	"k8s.io/mount-utils"
)

func main() {
	for _, dir := range os.Args[1:] {
		if err := removeall.RemoveAllOneFilesystem(mount.New(""), dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}
