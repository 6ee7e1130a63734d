// Package manifests makes those files of install/ that say again what is said
// elsewhere: the overlays, from the table of distributions; and what the chart has of
// that table, of rights and of policies. test/install/schema makes the chart's schema.
//
// The test of this package tells what is not up to date, and with -update (make
// docs) makes it.
package manifests

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/flex2csi/flex2csi/internal/distribution"
)

// Where they are.
const (
	Overlays = "install/overlays"
	Chart    = "install/chart/flex2csi"
)

// copied are the files of rights and policies that the chart needs, too. Helm
// reads nothing that is outside of a chart.
func copied() []string {
	return []string{
		"rbac/node.yaml", "rbac/controller.yaml", "rbac/node-tokens.yaml",
		"policy/attachments.yaml", "policy/tokens.yaml", "policy/pods.yaml", "migrate/volumes.yaml",
		"components/attach/attach-rbac.yaml",
		"components/monitoring/rules.yaml", "components/monitoring/dashboard.json",
	}
}

// Files are all that are made, by their path below the repository's root.
func Files(root string) (map[string]string, error) {
	files := map[string]string{}
	for _, d := range distribution.All() {
		files[filepath.Join(Overlays, d.Name, "kustomization.yaml")] = Overlay(d)
	}
	for _, name := range copied() {
		content, err := os.ReadFile(filepath.Join(root, "install", name))
		if err != nil {
			return nil, err
		}
		files[filepath.Join(Chart, "files", filepath.Base(name))] = string(content)
	}
	files[filepath.Join(Chart, "files", "distributions.yaml")] = distributions()
	return files, nil
}

// distributions is what the chart has of the table.
func distributions() string {
	var b strings.Builder
	b.WriteString("# Made from internal/distribution by make docs.\n")
	for _, d := range distribution.All() {
		fmt.Fprintf(&b, "%s:\n  pluginDir: %s\n  kubeletDir: %s\n", d.Name, d.PluginDir, d.KubeletDir)
	}
	return b.String()
}
