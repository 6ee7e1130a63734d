package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/internal/driverconfig"
)

// node is a node's file tree with the driver installed, and the programs that
// are measured.
type node struct {
	dir    string
	empty  program
	driver program
	// The driver as it was built, and both programs with their symbols.
	stripped, driverSymbols, emptySymbols string
	// The bridge's programs.
	flex2csi, csidriver string
	// shared is the directory behind volumes with path.
	shared string
}

const emptyProgram = "package main\n\nfunc main() {}\n"

// floorProgram is what any program like flexdriver has to carry: the libraries
// that are given, used as flexdriver uses them, but for init a constant answer.
const floorProgram = `package main

import (
	"os"

	"github.com/moby/sys/mountinfo"
	"github.com/spf13/pflag"
	mountutils "k8s.io/mount-utils"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "init" {
		os.Stdout.WriteString("{\"status\":\"Success\"}\n")
		return
	}
	set := pflag.NewFlagSet("floor", pflag.ContinueOnError)
	set.String("string", "", "")
	set.Bool("bool", false, "")
	set.Parse(os.Args[1:])
	disk := mountutils.SafeFormatAndMount{}
	disk.FormatAndMount("", "", "", nil)
	mountutils.NewResizeFs(nil).Resize("", "")
	mountinfo.GetMounts(mountinfo.PrefixFilter(""))
}
`

func newNode(ctx context.Context, dir string) (node, error) {
	n := node{
		dir: dir, shared: filepath.Join(dir, "shared"), stripped: filepath.Join(dir, "flexdriver"),
		driverSymbols: filepath.Join(dir, "flexdriver.symbols"), emptySymbols: filepath.Join(dir, "empty.symbols"),
	}
	pluginDir := filepath.Join(dir, "plugins/example.com~bench")
	environment := []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	n.empty = program{path: filepath.Join(dir, "empty"), env: environment}
	n.driver = program{path: filepath.Join(pluginDir, "bench"), env: environment, want: `"Success"`}
	for _, d := range []string{pluginDir, n.shared} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return n, err
		}
	}
	source := filepath.Join(dir, "empty.go")
	if err := os.WriteFile(source, []byte(emptyProgram), 0o600); err != nil {
		return n, err
	}
	const flexdriver = "github.com/flex2csi/flex2csi/cmd/flexdriver"
	for _, step := range []func() error{
		func() error { return build(ctx, source, n.empty.path+".built", "-s -w") },
		func() error { return build(ctx, flexdriver, n.stripped, "-s -w") },
		func() error { return install(n.empty.path+".built", n.empty.path) },
		func() error { return install(n.stripped, n.driver.path) },
		func() error { return build(ctx, source, n.emptySymbols, "") },
		func() error { return build(ctx, flexdriver, n.driverSymbols, "") },
		func() error { return n.configure(pluginDir) },
		func() error { return n.buildBridge(ctx) },
	} {
		if err := step(); err != nil {
			return n, err
		}
	}
	return n, nil
}

// floor builds floorProgram.
func (n node) floor(ctx context.Context) (program, error) {
	p := program{path: filepath.Join(n.dir, "floor"), env: n.empty.env, want: n.driver.want}
	source := p.path + ".go"
	if err := os.WriteFile(source, []byte(floorProgram), 0o600); err != nil {
		return p, err
	}
	if err := build(ctx, source, p.path+".built", "-s -w"); err != nil {
		return p, err
	}
	return p, install(p.path+".built", p.path)
}

// build builds a program as make build does.
func build(ctx context.Context, what, to, ldflags string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-tags=grpcnotrace", "-buildvcs=false", "-ldflags", ldflags, "-o", to, what)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %s: %w\n%s", what, err, out)
	}
	return nil
}

// install copies a program, as flexdriver install does. The linker writes its
// output in another way, which leaves it in smaller pieces in the page cache;
// programs start a tenth slower from there.
func install(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o755)
}

// images is the image root; the images of a namespace are in its directory.
func (n node) images() string { return filepath.Join(n.dir, "images") }

func (n node) configure(pluginDir string) error {
	c := driverconfig.Default(driverconfig.DriverName{Vendor: "example.com", Name: "bench"}, driverconfig.BackendLocal)
	c.DirectoryRoots, c.ImageRoots = []string{n.shared}, []string{n.images()}
	content, err := c.Encode()
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(pluginDir, driverconfig.FileName), content, driverconfig.FileMode)
}

// volume is a volume and the pod's directory for it.
type volume struct {
	dir, options string
	driver       program
}

// volume makes room for a volume with the given options (JSON, without braces).
func (n node) volume(pod, options string) (volume, error) {
	v := volume{
		dir:     filepath.Join(n.dir, "kubelet/pods", pod, "volumes/example.com~bench/data"),
		options: "{" + options + `,"kubernetes.io/pod.uid":"` + pod + `","kubernetes.io/pvOrVolumeName":"data","kubernetes.io/readwrite":"rw"}`,
		driver:  n.driver,
	}
	return v, os.MkdirAll(v.dir, 0o750)
}

func (n node) bindVolume(pod string) (volume, error) {
	return n.volume(pod, fmt.Sprintf(`"path":%q,"kubernetes.io/fsType":""`, n.shared))
}

func (v volume) mount() (cost, error)   { return v.driver.call("mount", v.dir, v.options) }
func (v volume) unmount() (cost, error) { return v.driver.call("unmount", v.dir) }

// cycle is both.
func (v volume) cycle() (cost, error) {
	up, err := v.mount()
	if err != nil {
		return up, err
	}
	down, err := v.unmount()
	return up.plus(down), err
}

// machine describes where this runs, for the head of the table.
func machine() string {
	var u unix.Utsname
	_ = unix.Uname(&u)
	return fmt.Sprintf("Linux %s, load %s", unix.ByteSliceToString(u.Release[:]), load())
}

func load() string {
	all, _ := os.ReadFile("/proc/loadavg")
	lastMinute, _, _ := strings.Cut(string(all), " ")
	return lastMinute
}
