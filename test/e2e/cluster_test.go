package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/flex2csi/flex2csi/internal/distribution"
	"github.com/flex2csi/flex2csi/test/node"
)

const (
	// installed is the namespace of flex2csi.
	installed = "flex2csi"
	// localImages is where disks of the backend local are, in a directory for each namespace.
	localImages = "/var/lib/volumes"
	pluginDir   = "/usr/libexec/kubernetes/kubelet-plugins/volume/exec"
)

// A cluster is a node with all that scenarios share in it.
type cluster struct {
	node   *node.Node
	client kubernetes.Interface
	// dir is for what people look at afterwards: bin/e2e/VERSION.
	dir string
	// patience bounds each wait. Retries of the kubelet double up to two minutes, so a
	// scenario with failures may need more.
	patience time.Duration
	// migrating is held while flex2csi migrate runs: a cluster has one lease for it.
	migrating sync.Mutex
}

// env is a variable of the environment, or what it is without.
func env(name, without string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return without
}

// usualPatience is that of a release. A kubelet before 1.27 that has begun to wait for a
// volume does so for 2m3s, also of a pod that is deleted meanwhile: its
// WaitForAttachAndMount has no context (pkg/kubelet/volumemanager, podAttachAndMountTimeout).
func usualPatience(m distribution.Minor) time.Duration {
	if m < 27 {
		return 4 * time.Minute
	}
	return 2 * time.Minute
}

// startCluster starts a node and installs everything, as its users would.
func startCluster(t *testing.T) *cluster {
	t.Helper()
	usual := usualPatience(minor())
	patience, err := time.ParseDuration(env("E2E_PATIENCE", usual.String()))
	if err != nil {
		t.Fatalf("E2E_PATIENCE: %v", err)
	}
	// As many pods as measure wants, and those of the system.
	n, err := node.Start(t.Context(), node.Options{Version: version(), Kubelet: map[string]any{
		"maxPods": 250,
		// How often it looks whether a claim has grown, or has become a CSI volume; one
		// minute would be its own.
		"syncFrequency": env("E2E_SYNC", "10s"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Stop(); err != nil {
			t.Errorf("stop the node: %v", err)
		}
	})
	c := &cluster{node: n, client: n.Client(), dir: resultDir(), patience: usual}
	for _, step := range []func(context.Context) error{c.importImages, c.install, c.installLocal} {
		if err := step(t.Context()); err != nil {
			(&T{T: t, cluster: c, Namespace: "e2e-start"}).keepArtefacts()
			t.Fatal(err)
		}
	}
	c.patience = patience // less for scenarios that are to fail
	return c
}

// importImages gives containerd the images that make e2e-images has built.
func (c *cluster) importImages(ctx context.Context) error {
	images, err := filepath.Glob(filepath.Join(os.Getenv("FLEX_IMAGES"), "*.tar"))
	if err == nil && len(images) == 0 {
		err = errors.New("no images in $FLEX_IMAGES: make e2e-images builds them")
	}
	if broken := os.Getenv("E2E_IMAGE"); broken != "" {
		images = append(images, broken) // takes the place of that of the same name
	}
	for _, image := range images {
		err = errors.Join(err, c.node.Import(ctx, image))
	}
	return err
}

// install installs the CSI drivers and what is under test, and waits until all of
// it is ready. E2E_INSTALL names something broken, to see that scenarios fail.
func (c *cluster) install(ctx context.Context) error {
	for _, dir := range []string{"manifests", tells(), env("E2E_INSTALL", manifests())} {
		if _, err := c.kubectl("apply", "-k", dir); err != nil {
			return err
		}
	}
	return errors.Join(c.rolledOut(ctx, "csi"), c.rolledOut(ctx, installed))
}

// manifests are those of what is under test.
func manifests() string {
	if !minor().Has(distribution.AdmissionPolicies()) {
		return "manifests/flex2csi-before-1.30"
	}
	return "manifests/flex2csi"
}

// policyKinds are what kubectl calls the kinds of policies, if there are any.
func policyKinds() []string {
	if !minor().Has(distribution.AdmissionPolicies()) {
		return nil
	}
	return []string{"validatingadmissionpolicies", "validatingadmissionpolicybindings"}
}

// installLocal installs drivers of the backend local, which need no daemon.
func (c *cluster) installLocal(context.Context) error {
	for _, d := range []struct {
		name  string
		flags []string
	}{{local().flex, nil}, {localAttached().flex, []string{"--attach"}}} {
		args := append([]string{"install", "--driver", d.name, "--volume-plugin-dir", pluginDir, "--image-root", localImages}, d.flags...)
		if out, err := exec.Command(os.Getenv("FLEXDRIVER_BINARY"), args...).CombinedOutput(); err != nil {
			return fmt.Errorf("install %s: %w: %s", d.name, err, out)
		}
	}
	return os.MkdirAll(localImages, 0o700)
}

// rolledOut waits until all DaemonSets and Deployments of a namespace are as they
// are to be.
func (c *cluster) rolledOut(ctx context.Context, namespace string) error {
	return retry(c.patience, func() error {
		sets, err := c.client.AppsV1().DaemonSets(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		deployments, err := c.client.AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		var errs []error
		for i := range sets.Items {
			errs = append(errs, daemonSetReady(&sets.Items[i]))
		}
		for i := range deployments.Items {
			errs = append(errs, deploymentReady(&deployments.Items[i]))
		}
		return errors.Join(errs...)
	})
}

func daemonSetReady(d *appsv1.DaemonSet) error {
	s := d.Status
	if s.ObservedGeneration == d.Generation && s.DesiredNumberScheduled > 0 && s.UpdatedNumberScheduled == s.DesiredNumberScheduled &&
		s.NumberAvailable == s.DesiredNumberScheduled && s.CurrentNumberScheduled == s.DesiredNumberScheduled {
		return nil
	}
	return fmt.Errorf("DaemonSet %s: of %d pods %d are up to date and %d available", d.Name, s.DesiredNumberScheduled, s.UpdatedNumberScheduled, s.NumberAvailable)
}

func deploymentReady(d *appsv1.Deployment) error {
	s, want := d.Status, *d.Spec.Replicas
	if s.ObservedGeneration == d.Generation && s.UpdatedReplicas == want && s.AvailableReplicas == want && s.Replicas == want {
		return nil
	}
	return fmt.Errorf("Deployment %s: of %d pods %d are up to date and %d available", d.Name, want, s.UpdatedReplicas, s.AvailableReplicas)
}

// commandPatience is how long a command that people type may take.
const commandPatience = time.Minute

// run runs a program of the machine, and returns what it said to stdout.
func run(name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), commandPatience)
	defer cancel()
	var stderr strings.Builder
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s %s: %w: %s", filepath.Base(name), strings.Join(args, " "), err, stderr.String())
	}
	return string(out), err
}

func (c *cluster) kubectl(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), commandPatience)
	defer cancel()
	return c.node.Kubectl(ctx, args...)
}

// flex2csi runs the program on the node, as root there would.
func (c *cluster) flex2csi(args ...string) (string, error) {
	return run(os.Getenv("FLEX2CSI_BINARY"), args...)
}

// exec runs a program in a container.
func (c *cluster) exec(namespace, pod, container string, argv ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), commandPatience)
	defer cancel()
	return c.node.Exec(ctx, namespace, pod, container, argv...)
}

// partLogs are the files with what kubelet, containerd and control plane said, by
// their names.
func (c *cluster) partLogs() map[string]string {
	logs := map[string]string{"audit": c.node.AuditLog()}
	for _, p := range c.node.Parts() {
		logs[p.Name] = p.Log
	}
	return logs
}
