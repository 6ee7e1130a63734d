package sanity

import (
	"context"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"github.com/onsi/ginkgo/v2/types"

	"github.com/flex2csi/flex2csi/test/csidriver"
	"github.com/flex2csi/flex2csi/test/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// variant is one configuration of the driver, and what csi-sanity then has to
// leave out because the driver lacks it.
type variant struct {
	name  string
	set   func(*csidriver.Config)
	lacks []string // beginnings of the reasons
}

// The driver has no snapshots, clones, groups or mutable parameters at all.
var never = []string{
	"CreateSnapshot not supported", "DeleteSnapshot not supported", "GetSnapshot not supported", "ListSnapshots not supported",
	"Snapshot not supported", "Volume Cloning not supported", "Modify Volume not supported", "Modify volume not supported",
	"ControllerModifyVolume not supported", "GroupControllerService not supported",
}

func variants() []variant {
	attachOff := []string{"Controller Publish, UnpublishVolume not supported", "ControllerPublishVolume not supported", "ControllerUnpublishVolume not supported"}
	noLimit := "No MaxVolumesPerNode"
	return []variant{
		{"plain", func(*csidriver.Config) {}, attachOff},
		{"attach", func(c *csidriver.Config) { c.Attach = true }, []string{noLimit}},
		{"attach, limit, mount group, two sockets", func(c *csidriver.Config) {
			c.Attach, c.MaxVolumes, c.MountGroup = true, 4, true
			c.ControllerEndpoint = filepath.Join(c.Dir, "controller.sock")
		}, nil},
		{"no stage", func(c *csidriver.Config) { c.NoStage = true }, append([]string{"NodeStageVolume not supported", "NodeUnstageVolume not supported"}, attachOff...)},
		{"old, attach", func(c *csidriver.Config) { c.Attach, c.OldModes = true, true }, []string{noLimit, "Service does not have single node multi writer capability"}},
		{"no expansion", func(c *csidriver.Config) { c.Expansion = csidriver.ExpandNever }, append([]string{"ControllerExpandVolume not supported", "NodeExpandVolume not supported"}, attachOff...)},
	}
}

const envVariant = "SANITY_VARIANT"

// TestSanity runs the suite in a process for each variant: ginkgo runs a suite
// once in a process.
func TestSanity(t *testing.T) {
	testenv.Need(t, "ext4")
	for _, v := range variants() {
		t.Run(v.name, func(t *testing.T) {
			dir := shortDir(t)
			report := filepath.Join(dir, "report.json")
			cmd := exec.Command(os.Args[0], "-test.run=^TestSuite$", "-test.count=1", "-ginkgo.json-report="+report)
			cmd.Env = append(os.Environ(), envVariant+"="+v.name, "SANITY_DIR="+dir)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("csi-sanity: %v\n%s", err, out)
			}
			check(t, v, report)
		})
	}
}

// check counts, and makes sure that nothing was left out but for a good
// reason.
func check(t *testing.T, v variant, report string) {
	t.Helper()
	b, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	var reports []types.Report
	if err := json.Unmarshal(b, &reports); err != nil {
		t.Fatal(err)
	}
	count := map[types.SpecState]int{}
	for _, spec := range reports[0].SpecReports {
		if spec.LeafNodeType != types.NodeTypeIt {
			continue
		}
		count[spec.State]++
		switch reason := spec.Failure.Message; spec.State {
		case types.SpecStatePassed, types.SpecStatePending: // csi-sanity itself has one test switched off
		case types.SpecStateSkipped:
			if !slices.ContainsFunc(append(never, v.lacks...), func(s string) bool { return strings.HasPrefix(reason, s) }) {
				t.Errorf("skipped %q for no good reason: %s", spec.FullText(), reason)
			}
		default:
			t.Errorf("%v: %s: %s", spec.State, spec.FullText(), reason)
		}
	}
	t.Logf("csi-sanity: %d passed, %d failed, %d skipped, %d pending", count[types.SpecStatePassed], count[types.SpecStateFailed]+count[types.SpecStatePanicked], count[types.SpecStateSkipped], count[types.SpecStatePending])
	if count[types.SpecStatePassed] < 40 {
		t.Errorf("only %d tests passed", count[types.SpecStatePassed])
	}
}

// shortDir: the path of a socket has at most 107 bytes.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sanity") //nolint:usetesting // t.TempDir has a long name
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	testenv.LeakCheck(t, dir)
	return dir
}

// TestSuite is the suite itself, for one variant.
func TestSuite(t *testing.T) {
	n := slices.IndexFunc(variants(), func(v variant) bool { return v.name == os.Getenv(envVariant) })
	if n < 0 {
		if flag.Lookup("test.run").Value.String() == "^TestSuite$" {
			t.Fatalf("no variant %q", os.Getenv(envVariant))
		}
		return // TestSanity runs it
	}
	dir := os.Getenv("SANITY_DIR")
	config := csidriver.Config{Name: "loop.csi.example.com", NodeID: "node-1", Dir: filepath.Join(dir, "driver"), Endpoint: filepath.Join(dir, "csi.sock")}
	if err := os.Mkdir(config.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	variants()[n].set(&config)
	d, err := csidriver.Listen(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan error)
	go func() { stopped <- d.Serve(ctx) }()
	defer func() {
		stop()
		if err := <-stopped; err != nil {
			t.Errorf("serve: %v", err)
		}
	}()
	secrets := "NodeStageVolumeSecret: {password: secret}\nNodePublishVolumeSecret: {password: secret}\n"
	if err := os.WriteFile(filepath.Join(dir, "secrets.yaml"), []byte(secrets), 0o600); err != nil {
		t.Fatal(err)
	}
	sanity.Test(t, suiteConfig(dir, config))
	left, err := csidriver.Inspect(config.Dir)
	if err != nil || len(left) > 0 {
		t.Errorf("volumes left: %v, %v", left, err)
	}
}

func suiteConfig(dir string, d csidriver.Config) sanity.TestConfig {
	c := sanity.NewTestConfig()
	c.Address = "unix://" + d.Endpoint
	if d.ControllerEndpoint != "" {
		c.ControllerAddress = "unix://" + d.ControllerEndpoint
	}
	c.TargetPath, c.StagingPath = filepath.Join(dir, "target"), filepath.Join(dir, "staging")
	c.TestVolumeSize, c.TestVolumeExpandSize = 64<<20, 96<<20
	c.TestVolumeParameters = map[string]string{"requireSecret": "password", "color": "blue"}
	c.TestNodeVolumeAttachLimit = true
	c.SecretsFile = filepath.Join(dir, "secrets.yaml")
	return c
}
