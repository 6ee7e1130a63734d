package main

import (
	"os"
	"path/filepath"

	"github.com/flex2csi/flex2csi/internal/install/onnode"
)

// hostRoot returns where the pod has the node's /, as recorded by install; empty on the
// node itself.
func hostRoot(stateDir string) string {
	word, err := onnode.Read(stateDir)
	if err != nil || word.HostRoot == "" {
		return ""
	}
	if _, err := os.Stat(filepath.Join(word.HostRoot, "proc/1")); err != nil {
		return ""
	}
	return word.HostRoot
}
