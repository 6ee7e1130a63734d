package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/flex2csi/flex2csi/test/parts"
)

// Name is the Node object's, and the host's in its namespace.
const Name = "node-1"

// Options say what is not the same for all nodes. The zero value is useful.
type Options struct {
	// Version is the release of Kubernetes: 1.36, for instance. Empty: the one
	// that $FLEX_PROGRAMS has.
	Version string
	// ControllerPluginDir is kube-controller-manager's directory of FlexVolume
	// drivers. Empty: the kubelet's, as the two share a machine.
	ControllerPluginDir string
	// Args are more arguments of a part, by its name.
	Args map[string][]string
	// Kubelet are more fields of the kubelet's configuration.
	Kubelet map[string]any
}

// A Node is a cluster of one node: all parts of a control plane, a container
// runtime and a kubelet.
type Node struct {
	ETCD, APIServer, ControllerManager, Scheduler, Containerd, Kubelet *parts.Part

	options Options
	dir     string // as the machine has it
	path    []string
	cert    *parts.Certificate
	client  kubernetes.Interface
	before  Things
}

// Kubeconfig is the administrator's.
const Kubeconfig = "/etc/kubernetes/admin.conf"

// Start starts all parts and waits until the node can run pods. It has to be
// called where Isolate leads to.
func Start(ctx context.Context, o Options) (*Node, error) {
	n := &Node{options: o, dir: os.Getenv(envDir)}
	if os.Getenv(envStage) != stageInside {
		return nil, errors.New("this process is not inside a node: call Isolate first")
	}
	var err error
	if n.path, err = programs(o.Version); err != nil {
		return nil, err
	}
	if err := n.writeFiles(); err != nil {
		return nil, err
	}
	if n.client, err = kubernetes.NewForConfig(n.as(admin).Config()); err != nil {
		return nil, err
	}
	n.describe()
	if err := n.start(ctx); err != nil {
		return nil, errors.Join(err, n.Stop())
	}
	n.before, err = Look()
	return n, err
}

// Client may do everything.
func (n *Node) Client() kubernetes.Interface { return n.client }

// Dir is where the node's files are outside of it.
func (n *Node) Dir() string { return n.dir }

// Parts are all parts, in the order in which they start.
func (n *Node) Parts() []*parts.Part {
	return []*parts.Part{n.ETCD, n.APIServer, n.Containerd, n.ControllerManager, n.Scheduler, n.Kubelet}
}

// describe says what the parts are.
func (n *Node) describe() {
	n.ETCD, n.APIServer = n.etcd(), n.apiServer()
	n.ControllerManager, n.Scheduler = n.controllerManager(), n.scheduler()
	n.Containerd, n.Kubelet = n.containerd(), n.kubelet()
}

func (n *Node) start(ctx context.Context) error {
	err := together(
		func() error {
			if err := inTurn(n.ETCD.Start, n.APIServer.Start); err != nil {
				return err
			}
			if err := n.checkVersion(); err != nil {
				return err
			}
			return inTurn(n.ControllerManager.Start, n.Scheduler.Start)
		},
		func() error {
			if err := n.Containerd.Start(); err != nil {
				return err
			}
			return n.Import(ctx, n.program("pause.tar"))
		},
	)
	if err != nil {
		return err
	}
	if err := n.Kubelet.Start(); err != nil {
		return err
	}
	return n.waitReady(ctx)
}

// Stop ends all parts and all pods. What is left, the end of the process that
// called Isolate takes away.
func (n *Node) Stop() error {
	n.Kubelet.Stop()
	err := n.killPods()
	for _, p := range []*parts.Part{n.Containerd, n.Scheduler, n.ControllerManager, n.APIServer, n.ETCD} {
		p.Kill()
	}
	return errors.Join(err, detachLoops(n.dir))
}

// part describes a program of the node.
func (n *Node) part(name string, env []string, args ...string) *parts.Part {
	argv := append([]string{n.program(name)}, args...)
	return &parts.Part{
		Name: name, Argv: append(argv, n.options.Args[name]...), Env: env,
		Log: filepath.Join(n.dir, "log", name+".log"),
	}
}

// The environment of what runs in the node: drivers inherit the kubelet's.
const usualPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

func usualEnv() []string { return []string{"PATH=" + usualPath, "LANG=C.UTF-8"} }

// Env is the environment of who plays with the node: the programs and the
// kubeconfig.
func (n *Node) Env() []string {
	return []string{"PATH=" + strings.Join(n.path, ":") + ":" + usualPath, "HOME=/root", "LANG=C.UTF-8", "KUBECONFIG=" + Kubeconfig}
}

// envPrograms is the directory with the programs, and the image that holds pods.
const envPrograms = "FLEX_PROGRAMS"

// programs are the directories with the programs of a release.
func programs(version string) ([]string, error) {
	dir := os.Getenv(envPrograms)
	if dir == "" {
		return nil, fmt.Errorf("$%s is not set: make node-programs builds what a node needs into bin/programs", envPrograms)
	}
	dirs := []string{dir}
	if of := dir + "-" + version; version != "" && isDir(of) {
		dirs = []string{of, dir}
	}
	return dirs, nil
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// program is the path of one of them.
func (n *Node) program(name string) string {
	for _, dir := range n.path {
		if path := filepath.Join(dir, name); exists(path) {
			return path
		}
	}
	return name // to start it will fail, and say so
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// together runs all at the same time and waits for all.
func together(fs ...func() error) error {
	results := make(chan error)
	for _, f := range fs {
		go func() { results <- f() }()
	}
	var errs []error
	for range fs {
		errs = append(errs, <-results)
	}
	return errors.Join(errs...)
}

// inTurn runs one after the other, until one fails.
func inTurn(fs ...func() error) error {
	for _, f := range fs {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

// pause between two checks of a wait.
const pause = 50 * time.Millisecond

// Await asks until there is no error, or the context ends.
func Await(ctx context.Context, what string, ask func(ctx context.Context) error) error {
	var last error
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil { // else it tells only that
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w (%w)", what, last, ctx.Err())
		case <-time.After(pause):
		}
	}
}
