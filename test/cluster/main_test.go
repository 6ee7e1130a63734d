package cluster

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flex2csi/flex2csi/test/controlplane"
	"github.com/flex2csi/flex2csi/test/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// A cluster is a control plane with what the project installs in it.
type cluster struct {
	*controlplane.Plane
	kcm *controlplane.Part
}

func start(t testing.TB) *cluster {
	t.Helper()
	testenv.Need(t, "root", "mount")
	c := &cluster{Plane: controlplane.Start(t)}
	const install = "../../install/"
	c.Apply(install + "namespace.yaml")
	c.ConfigMap("flex2csi", "flex2csi-config", map[string]string{"config.yaml": ""})
	c.Apply(anyDriver(t, install+"policy/attachments.yaml"))
	for _, file := range []string{"rbac/node.yaml", "rbac/controller.yaml", "components/attach/attach-rbac.yaml", "policy/tokens.yaml"} {
		c.Apply(install + file)
	}
	c.kcm = c.StartControllerManager()
	return c
}

// anyDriver is the policies with any CSI driver allowed: each test has one of its own, and
// daemons with a configuration of their own.
func anyDriver(t testing.TB, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const none, every = "name: others\n      expression: \"['']\"", "name: others\n      expression: \"['*']\""
	if strings.Count(string(data), none) != 1 {
		t.Fatalf("%s has no variable others", file)
	}
	file = filepath.Join(t.TempDir(), filepath.Base(file))
	if err := os.WriteFile(file, []byte(strings.Replace(string(data), none, every, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestCluster shares one control plane among many tests; each has a CSI driver
// and nodes of its own in it.
func TestCluster(t *testing.T) {
	c := start(t)
	for name, test := range map[string]func(*testing.T, *cluster){
		"life":      testLife,
		"limit":     testAttachLimit,
		"unknown":   testNotRegistered,
		"away":      testAttacherAway,
		"givenup":   testAttacherGivenUp,
		"errors":    testAttacherErrors,
		"modes":     testAttacherModes,
		"outage":    testOutage,
		"noattach":  testNoAttach,
		"answers":   testAnswers,
		"watches":   testWatches,
		"nodes":     testTwoNodes,
		"race":      testRace,
		"leftalone": testLeftAlone,
		"adopted":   testAdopted,
		"deleting":  testDeleting,
		"deleted":   testDeleted,
		"attach":    testByControlPlane,
		"fails":     testAttachFails,
		"dead":      testOutOfService,
		"objects":   testObjects,
		"inline":    testInline,
		"imitated":  testImitated,
		"verified":  testVerified,
		"orphan":    testOrphan,
		"secrets":   testSecrets,
		"forgotten": testForgotten,
		"many":      testMany,
		"requests":  testRequests,
		"gcepd":     testGCEPD,
		"mock":      testMock,
		"campaign":  testCampaign,
	} {
		t.Run(name, func(t *testing.T) { test(t, c) })
	}
	if name := flag.Lookup("test.run").Value.String(); name == "" {
		t.Run("rights", func(t *testing.T) { testRightsUsed(t, c) })
	}
}
