package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// removeAll uninstalls everything, as docs/uninstall.md has it: at the end the
// node and the cluster are as if there had been nothing.
func removeAll(t *T) {
	pods, err := t.client.CoreV1().Pods(installed).List(t.ctx(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=node"})
	t.must(err)
	if len(pods.Items) != 1 {
		t.Fatalf("there are %d daemons", len(pods.Items))
	}
	out, err := t.exec(installed, pods.Items[0].Name, "serve", "/flex2csi", "uninstall")
	t.must(withText(err, out))
	for _, dir := range []string{manifests(), tells(), "manifests"} {
		_, err := t.kubectl("delete", "-k", dir)
		t.must(err)
	}
	for _, d := range []driver{local(), localAttached()} {
		_, err := run(os.Getenv("FLEXDRIVER_BINARY"), "uninstall", "--driver", d.flex, "--volume-plugin-dir", pluginDir)
		t.must(err)
	}
	t.wait("the end of everything", t.clean)
}

// clean is an error while something is left on the node or in the cluster.
func (c *cluster) clean() error {
	left, err := c.node.Leaks()
	if err != nil {
		return err
	}
	for _, pattern := range []string{pluginDir + "/*", pluginDir + "/.*", "/var/lib/flex2csi/*", "/run/flex2csi/*"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		left = append(left, files...)
	}
	kinds := append([]string{"volumeattachments", "pv", "csidrivers", "clusterroles", "clusterrolebindings"}, policyKinds()...)
	out, err := c.kubectl("get", strings.Join(kinds, ","), "-o", "name")
	if err != nil {
		return err
	}
	for name := range strings.Lines(out) {
		if strings.Contains(name, "flex2csi") || strings.Contains(name, "volumeattachment") || strings.Contains(name, "persistentvolume/") {
			left = append(left, strings.TrimSpace(name))
		}
	}
	if len(left) > 0 {
		return errors.New("left: " + strings.Join(left, "\n\t"))
	}
	return nil
}
