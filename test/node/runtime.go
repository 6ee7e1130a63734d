package node

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/flex2csi/flex2csi/test/parts"
)

const (
	containerdConfig   = "/etc/containerd/config.toml"
	containerdSocket   = "/run/containerd/containerd.sock"
	containerdEndpoint = "unix://" + containerdSocket
	cniConfig          = "/etc/cni/net.d/10-node.conflist"
	pauseImage         = "localhost/pause:node"
)

// patience is how long one part may take for something that takes a second.
const patience = 3 * time.Minute

// containerdConfig is what differs from containerd's defaults
// (docs/cri/config.md, containerd v2.3.7).
func (n *Node) containerdConfig() []byte {
	return fmt.Appendf(nil, `version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.nri.v1.nri"]

[grpc]
  address = %q

[plugins.'io.containerd.internal.v1.opt']
  path = "/var/lib/containerd/opt"

[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = %q

[plugins.'io.containerd.cri.v1.runtime']
  # Neither needs anything of the machine: the one a module of the kernel, the
  # other the right to make processes less likely to be killed.
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = [%q]
    conf_dir = %q
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      BinaryName = %q
      SystemdCgroup = false
`, containerdSocket, pauseImage, n.program("cni"), filepath.Dir(cniConfig), n.program("runc"))
}

// cniNetwork is a bridge from pods to the node, and from there nowhere.
func cniNetwork() []byte {
	return fmt.Appendf(nil, `{"cniVersion": "1.0.0", "name": "node", "plugins": [{
  "type": "bridge", "bridge": %q, "isGateway": true,
  "ipam": {"type": "host-local", "ranges": [[{"subnet": %q}]], "routes": [{"dst": "0.0.0.0/0"}]}
}]}
`, bridge, podRange)
}

func (n *Node) containerd() *parts.Part {
	env := n.Env()
	// runc's only library, where the machine does not have it.
	env = append(env, "LD_LIBRARY_PATH="+n.program("lib"))
	p := n.part("containerd", env, "--config", containerdConfig)
	p.Ready = untilWorks(p, func(ctx context.Context) error {
		_, err := n.ctr(ctx, "version")
		return err
	})
	return p
}

// untilWorks waits until a part says that it works, or has ended.
func untilWorks(p *parts.Part, ask func(ctx context.Context) error) func() error {
	return func() error {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		return Await(ctx, p.Name, func(ctx context.Context) error {
			err := ask(ctx)
			if err != nil && p.Ended() {
				cancel() // it will not come
			}
			return err
		})
	}
}

// ctr is containerd's own client.
func (n *Node) ctr(ctx context.Context, args ...string) (string, error) {
	return n.run(ctx, "ctr", append([]string{"--address", containerdSocket, "--namespace", "k8s.io"}, args...)...)
}

// Import makes the image in an archive known to the node. It has to have a name.
func (n *Node) Import(ctx context.Context, archive string) error {
	if _, err := n.ctr(ctx, "image", "import", "--local", archive); err != nil {
		return fmt.Errorf("import the image %s: %w", archive, err)
	}
	return nil
}

// Images are the names of those that the node has.
func (n *Node) Images(ctx context.Context) ([]string, error) {
	out, err := n.ctr(ctx, "image", "list", "--quiet")
	return strings.Fields(out), err
}

// run runs one of the node's programs and returns what it says to stdout.
func (n *Node) run(ctx context.Context, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var stdout, stderr strings.Builder
	cmd := exec.CommandContext(ctx, n.program(name), args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = n.Env(), &stdout, &stderr
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}
