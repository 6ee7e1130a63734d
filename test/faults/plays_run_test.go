package faults

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/flex2csi/flex2csi/internal/testenv"
)

// TestHang: what hangs is no trouble for others.
func TestHang(t *testing.T) {
	testenv.Need(t, "root", "mount")
	p := plan{Name: "hang", Play: playHang, Seed: 1, Driver: []string{"--directories"}, Volumes: 4, RPC: 5 * time.Second, Grace: 200 * time.Millisecond}
	inWorld(t, &p)
}

// TestUpgrade: programs are replaced under load, and no call fails.
func TestUpgrade(t *testing.T) {
	testenv.Need(t, "root", "mount")
	p := plan{Name: "upgrade", Play: playUpgrade, Seed: 1, Driver: []string{"--directories"}, Volumes: 4, RPC: 5 * time.Second, Grace: time.Minute}
	dir := t.TempDir()
	p.NewDaemon, p.NewFlexdriver = otherBuild(t, dir, "flex2csi"), otherBuild(t, dir, "flexdriver")
	inWorld(t, &p)
}

// otherBuild builds a program so that it differs from the other one.
func otherBuild(t *testing.T, dir, name string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w -buildid=other", "-o", path, "../../cmd/"+name)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build another %s: %v\n%s", name, err, out)
	}
	return path
}
