package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/flex2csi/flex2csi/internal/distribution"
	"github.com/flex2csi/flex2csi/test/node"
	"github.com/flex2csi/flex2csi/test/testenv"
)

func TestMain(m *testing.M) { os.Exit(inNode(m.Run)) }

// inNode runs the tests inside a node. Its files are not used afterwards.
func inNode(tests func() int) int {
	const envDir = "E2E_DIR" // Isolate executes this program twice more
	if os.Getenv(envDir) != "" {
		return node.Isolate("", os.Stderr, tests)
	}
	dir, err := os.MkdirTemp("", "e2e")
	if err != nil {
		fmt.Fprintln(os.Stderr, "a directory for the node:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := os.Setenv(envDir, dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return node.Isolate(dir, os.Stderr, tests)
}

// version is the Kubernetes that the node runs.
func version() string {
	return env("KUBERNETES", "1.37")
}

// minor is the same as a number.
func minor() distribution.Minor {
	m, _ := distribution.ParseMinor(version())
	return m
}

// resultDir is where the table is, and what is left of scenarios that failed.
func resultDir() string {
	return env("E2E_RESULTS", filepath.Join("..", "..", "bin", "e2e", version()))
}

// TestScenarios is all there is: one node, and what is done with it.
func TestScenarios(t *testing.T) {
	testenv.Need(t, "node")
	began := time.Now()
	c := startCluster(t)
	r := &report{}
	up := time.Since(began)
	t.Cleanup(func() {
		headline := fmt.Sprintf("Kubernetes %s: up with everything installed after %.0f s, all after %.0f s\n",
			version(), up.Seconds(), time.Since(began).Seconds())
		if err := r.write(filepath.Join(c.dir, "table.txt"), headline+c.kubeletEnds(t)); err != nil {
			t.Error(err)
		}
	})
	t.Run("shared", func(t *testing.T) {
		c.runAll(t, r, shared(), true)
	})
	t.Run("alone", func(t *testing.T) {
		c.runAll(t, r, alone(), false)
	})
	t.Run("last", func(t *testing.T) {
		c.runAll(t, r, []section{on(last())}, false)
	})
}

// kubeletEnds tells how often the kubelet has ended by itself, and fails if that was not for
// the one reason that its release is known for.
func (c *cluster) kubeletEnds(t *testing.T) string {
	ends := c.node.Kubelet.Ends()
	if ends == 0 {
		return ""
	}
	text, err := fileText(c.node.Kubelet.Log)
	if err != nil {
		t.Error(err)
	}
	known := len(listOfDrivers().FindAllString(text, -1))
	if minor().Has(distribution.PluginLock()) || known < ends {
		t.Errorf("the kubelet has ended by itself %d times, %d of them over its list of FlexVolume drivers", ends, known)
	}
	return fmt.Sprintf("The kubelet has ended by itself %d times (before %s: %s)\n", ends, distribution.PluginLock().Name, distribution.PluginLock().Without)
}

// listOfDrivers is what the kubelet says when it ends over its list of FlexVolume drivers.
func listOfDrivers() *regexp.Regexp {
	return regexp.MustCompile(`fatal error: concurrent map .*\n(?:.*\n){1,12}?k8s.io/kubernetes/pkg/volume\.\(\*VolumePluginMgr\)`)
}

// shared are the scenarios that run side by side.
func shared() []section {
	return []section{
		on(lives(), useScenarios(), attachScenarios(), growScenarios(), secretScenarios(), announcements(), classScenarios()),
		since(distribution.Reconstruction(), migrations()),
	}
}

// alone are those that disturb others: each by itself, in this order.
func alone() []section {
	policies := distribution.AdmissionPolicies()
	manuals, kills := policies, policies
	manuals.Without = "the documents have people install the manifests with policies"
	kills.Without = "the scenario forbids a request by a policy"
	return []section{
		since(distribution.Reconstruction(), migrationsDisturbed()),
		since(manuals, manualScenarios()),
		on(disturbances(), upgrades(), takeOvers(), reboots(), measures(), migrateRestarts()),
		since(distribution.Reconstruction(), migrateReboots(), migrateVendors(), migrateMeasures(), migrateWaves(), migrateTerminals(), migrateJobs()),
		since(kills, migrateKills()),
	}
}

// last are those that look back, and take everything away.
func last() []scenario {
	return []scenario{
		{"refusals", "no request to the API server was without a right", refusals},
		{"removed", "uninstalled as docs/uninstall.md has it: node and cluster are as before", removeAll},
		{"rights", "each right of docs/rbac.md was used by a request", rightsUsed},
	}
}
