package manual_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/flex2csi/flex2csi/hack/manual"
	"github.com/flex2csi/flex2csi/internal/distribution"
)

// TestDistributions: the tables of docs/install.md are that of the code. With
// -update (make docs) they are made.
func TestDistributions(t *testing.T) {
	const (
		path  = "docs/install.md"
		begin = "<!-- What follows is made from internal/distribution by make docs. -->\n"
		end   = "<!-- Up to here. -->\n"
	)
	before, rest, ok := strings.Cut(read(t, path), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the tables", path)
	}
	manual.Check(t, root, map[string]string{path: before + begin + distributions() + end + after}, *update)
}

func distributions() string {
	var dirs, traps strings.Builder
	dirs.WriteString("\n| name | for | plugin directory | known from |\n|---|---|---|---|\n")
	traps.WriteString("\n| name | know that |\n|---|---|\n")
	for _, d := range distribution.All() {
		fmt.Fprintf(&dirs, "| `%s` | %s | `%s`", d.Name, d.Title, d.PluginDir)
		if d.KubeletDir != distribution.DefaultKubeletDir {
			fmt.Fprintf(&dirs, "; kubelet's directory `%s`", d.KubeletDir)
		}
		fmt.Fprintf(&dirs, " | %s |\n", d.Source)
		trap := d.Trap
		if d.SELinux && !strings.Contains(trap, "SELinux") {
			trap = strings.TrimSpace(trap + " Nodes usually have SELinux enforcing; the manifests give the container that installs the type spc_t.")
		}
		if trap != "" {
			fmt.Fprintf(&traps, "| `%s` | %s |\n", d.Name, trap)
		}
	}
	return dirs.String() + traps.String() + "\n"
}
