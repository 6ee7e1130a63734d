package manual_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/flex2csi/flex2csi/hack/manual"
	"github.com/flex2csi/flex2csi/internal/distribution"
)

// TestDistributions: the table of docs/install.md is that of the code. With
// -update (make docs) it is made.
func TestDistributions(t *testing.T) {
	const (
		path  = "docs/install.md"
		begin = "<!-- What follows is made from internal/distribution by make docs. -->\n"
		end   = "<!-- Up to here. -->\n"
	)
	before, rest, ok := strings.Cut(read(t, path), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table", path)
	}
	manual.Check(t, root, map[string]string{path: before + begin + distributions() + end + after}, *update)
}

// distributions makes the table. Most have the plugin directory of kubeadm, the first one.
func distributions() string {
	var b strings.Builder
	b.WriteString("\n| name | for | plugin directory | know that |\n|---|---|---|---|\n")
	for i, d := range distribution.All() {
		dir := "as `kubeadm`"
		if i == 0 || d.PluginDir != distribution.DefaultPluginDir {
			dir = "`" + d.PluginDir + "`"
		}
		if d.KubeletDir != distribution.DefaultKubeletDir {
			dir += "; kubelet's directory `" + d.KubeletDir + "`"
		}
		trap := d.Trap
		if d.SELinux && !strings.Contains(trap, "SELinux") {
			trap = strings.TrimSpace(trap + " Usually SELinux enforcing.")
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", d.Name, d.Title, dir, trap)
	}
	return b.String() + "\n"
}
