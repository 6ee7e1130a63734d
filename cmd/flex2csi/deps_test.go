package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/flex2csi/flex2csi/test/testenv"
)

// forbidden is what the daemon must not link. There is no list of what it does
// link: that has hundreds of lines, most of them gRPC's and CEL's.
const forbidden = `
testing                                  test/testenv and fakes are for tests
github.com/flex2csi/flex2csi/test        what the daemon is tested with
github.com/flex2csi/flex2csi/test/testenv   for tests
github.com/google/go-cmp                 for tests; it panics on purpose
github.com/kubernetes-csi/csi-test       for tests
k8s.io/kubernetes                        for tests
net/http/pprof                           registers itself with any HTTP server
`

func TestDeps(t *testing.T) {
	linked := testenv.Linked(t, forbidden)
	if !slices.Contains(linked, "google.golang.org/grpc") {
		t.Errorf("these are not the daemon's %d packages: gRPC is not among them", len(linked))
	}
}

// ofNodes is what the build for laptops must not link.
const ofNodes = forbidden + `
github.com/flex2csi/flex2csi/internal/daemon        the daemon
github.com/flex2csi/flex2csi/internal/wire          its socket
github.com/flex2csi/flex2csi/internal/install       the plugin directory
github.com/flex2csi/flex2csi/internal/local         mounts
github.com/flex2csi/flex2csi/internal/nodemounts    mounts
github.com/flex2csi/flex2csi/pkg/mounter            mounts
`

// ofUnix is what Windows does not have.
const ofUnix = ofNodes + `
golang.org/x/sys/unix                               Unix
github.com/google/renameio                          Unix
`

// TestLaptop: builds for macOS and Windows have nothing that needs a node. That they
// compile is a test of hack/release.
func TestLaptop(t *testing.T) {
	for _, platform := range []struct{ goos, goarch, forbidden string }{
		{"darwin", "arm64", ofNodes}, {"windows", "amd64", ofUnix}, {"windows", "arm64", ofUnix},
	} {
		t.Run(platform.goos+"_"+platform.goarch, func(t *testing.T) {
			linked := testenv.LinkedFor(t, platform.goos, platform.goarch, platform.forbidden)
			if !slices.Contains(linked, "github.com/flex2csi/flex2csi/internal/migrate") {
				t.Errorf("migrate is not among its %d packages", len(linked))
			}
		})
	}
}

// TestMethods: the linker leaves out methods that nothing calls. It cannot do so if a
// linked function looks for methods by a name that is not a constant, as templates do.
func TestMethods(t *testing.T) {
	testenv.Need(t, "root") // as user nobody there is no build cache, and the same to find
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-tags=grpcnotrace", "-ldflags", "-s -w -dumpdep", "-o", filepath.Join(t.TempDir(), "flex2csi"), ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
	out, err := build.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out[max(0, len(out)-4000):])
	}
	linked := 0
	for line := range strings.Lines(string(out)) {
		from, to, _ := strings.Cut(strings.TrimSpace(line), " -> ")
		if strings.HasSuffix(to, "<ReflectMethod>") {
			t.Errorf("%s is linked, for %s", to, from)
		}
		if to == "google.golang.org/grpc.NewClient" {
			linked++
		}
	}
	if linked == 0 {
		t.Errorf("these are not the daemon's symbols: gRPC's are not among them")
	}
}
