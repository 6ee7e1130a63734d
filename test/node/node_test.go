package node

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/test/testenv"
)

func TestMain(m *testing.M) {
	if os.Geteuid() != 0 {
		os.Exit(m.Run()) // each test says what it needs
	}
	os.Exit(Isolate("", os.Stderr, func() int {
		testenv.Isolated()
		return m.Run()
	}))
}

// A pod that says what the API server says to it, with the image that has
// nothing but the pause program: everything else is the machine's.
const podManifest = `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "test"}, "spec": {
	"terminationGracePeriodSeconds": 0,
	"containers": [{
		"name": "main", "image": "` + pauseImage + `", "imagePullPolicy": "Never",
		"command": ["/bin/sh", "-c", "/kubectl auth whoami && exec sleep infinity"],
		"env": [{"name": "PATH", "value": "/usr/bin:/bin"}],
		"volumeMounts": [
			{"name": "usr", "mountPath": "/usr"}, {"name": "usr", "mountPath": "/bin", "subPath": "bin"},
			{"name": "usr", "mountPath": "/lib", "subPath": "lib"}, {"name": "lib64", "mountPath": "/lib64"},
			{"name": "kubectl", "mountPath": "/kubectl"}, {"name": "root", "mountPath": "/host", "mountPropagation": "HostToContainer"}
		]
	}],
	"volumes": [
		{"name": "usr", "hostPath": {"path": "/usr"}}, {"name": "lib64", "hostPath": {"path": "/lib64"}},
		{"name": "kubectl", "hostPath": {"path": %q}}, {"name": "root", "hostPath": {"path": "/"}}
	]
}}`

// started starts the one node of these tests.
func started(t *testing.T) *Node {
	t.Helper()
	testenv.Need(t, "node", "ext4")
	began := time.Now()
	n, err := Start(t.Context(), Options{Version: os.Getenv("KUBERNETES")})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("up after %v", time.Since(began))
	t.Cleanup(func() {
		if err := n.Stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			for _, p := range n.Parts() {
				t.Logf("the end of what %s said:\n%s", p.Name, p.Tail())
			}
		}
	})
	return n
}

func TestNode(t *testing.T) {
	n := started(t)
	t.Run("pod", func(t *testing.T) { testPod(t, n) })
	t.Run("machine", func(t *testing.T) { testMachine(t, n) })
	t.Run("restarts", func(t *testing.T) { testRestarts(t, n) })
	t.Run("reboot", func(t *testing.T) { testReboot(t, n) })
	t.Run("leaks", func(t *testing.T) { testLeaks(t, n) })
}

func kubectl(t *testing.T, n *Node, args ...string) string {
	t.Helper()
	out, err := n.Kubectl(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// await waits for something about the pod.
func await(t *testing.T, n *Node, what string, ask func(status map[string]string) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := Await(ctx, what, func(ctx context.Context) error {
		pod, err := n.Client().CoreV1().Pods("default").Get(ctx, "test", metav1.GetOptions{})
		if err != nil {
			return err
		}
		status := map[string]string{"phase": string(pod.Status.Phase)}
		for _, c := range pod.Status.ContainerStatuses {
			status["container"] = c.ContainerID
			status["running"] = fmt.Sprint(c.State.Running != nil)
		}
		if !ask(status) {
			return fmt.Errorf("not yet: %v", status)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func testPod(t *testing.T, n *Node) {
	program, err := filepath.EvalSymlinks(n.program("kubectl"))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "pod.json")
	if err := os.WriteFile(file, fmt.Appendf(nil, podManifest, program), 0o600); err != nil {
		t.Fatal(err)
	}
	kubectl(t, n, "create", "-f", file)
	await(t, n, "the pod", func(s map[string]string) bool { return s["running"] == "true" })
	// By the network of pods, the address of a service, a token, and RBAC.
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err = Await(ctx, "the API server's answer to the pod", func(ctx context.Context) error {
		logs, err := n.Logs(ctx, "default", "test", "main", false)
		if err == nil && !strings.Contains(logs, "system:serviceaccount:default:default") {
			err = fmt.Errorf("it said %q", logs)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	out, err := n.Exec(t.Context(), "default", "test", "main", "cat", "/host"+bootIDFile)
	want, errID := BootID()
	if err != nil || errID != nil || strings.TrimSpace(out) != want {
		t.Errorf("the pod sees the node's boot id as %q, %v; want %q, %v", out, err, want, errID)
	}
	if _, err := n.Exec(t.Context(), "default", "test", "main", "false"); err == nil || !strings.Contains(err.Error(), "exit") {
		t.Errorf("a command that fails: %v", err)
	}
}

// testMachine looks at what the node shares with the machine.
func testMachine(t *testing.T, n *Node) {
	if name, err := os.Hostname(); err != nil || name != Name {
		t.Errorf("the host's name is %q, %v", name, err)
	}
	for _, dir := range append(layered(), KubeletDir) {
		mark := filepath.Join(dir, "mark-of-the-node")
		if err := os.WriteFile(mark, nil, 0o600); err != nil {
			t.Error(err)
		}
		found := false
		_ = filepath.WalkDir(n.Dir(), func(path string, _ os.DirEntry, _ error) error {
			found = found || filepath.Base(path) == filepath.Base(mark)
			return nil
		})
		if !found {
			t.Errorf("what is written to %s is not in the node's directory", dir)
		}
	}
	// The kubelet has changed this, and only here.
	if v, err := os.ReadFile("/proc/sys/vm/overcommit_memory"); err != nil || strings.TrimSpace(string(v)) != "1" {
		t.Errorf("vm.overcommit_memory is %q, %v", v, err)
	}
	shadow := filepath.Join(n.Dir(), "sysctl/vm/overcommit_memory")
	if v, err := os.ReadFile(shadow); err != nil || strings.TrimSpace(string(v)) != "1" {
		t.Errorf("%s is %q, %v: was the machine's changed?", shadow, v, err)
	}
}

// testRestarts: a container outlives the end of each part.
func testRestarts(t *testing.T, n *Node) {
	var before string
	await(t, n, "the container", func(s map[string]string) bool { before = s["container"]; return before != "" })
	for _, p := range n.Parts() {
		pid := p.PID()
		if err := p.Restart(); err != nil {
			t.Fatalf("%s: %v", p.Name, err)
		}
		if p.PID() == pid || p.Ended() {
			t.Errorf("%s was process %d and is %d", p.Name, pid, p.PID())
		}
	}
	kubectl(t, n, "annotate", "pod", "test", "seen=true")
	await(t, n, "the same container", func(s map[string]string) bool { return s["container"] == before && s["running"] == "true" })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := Await(ctx, "the kubelet to know the pod again", func(ctx context.Context) error {
		_, err := n.Exec(ctx, "default", "test", "main", "true")
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestVersion: no other release is tested by mistake.
func TestVersion(t *testing.T) {
	testenv.Need(t, "node")
	_, err := Start(t.Context(), Options{Version: "1.2"})
	if err == nil || !strings.Contains(err.Error(), "not 1.2") {
		t.Errorf("a release that is not there: %v", err)
	}
	var left []string
	for _, pid := range processes() {
		if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err == nil && slices.Contains([]string{"etcd", "kube-apiserver", "containerd"}, filepath.Base(exe)) {
			left = append(left, exe)
		}
	}
	if len(left) > 0 {
		t.Errorf("still running: %q", left)
	}
}

func TestOutside(t *testing.T) {
	t.Setenv(envStage, "")
	if _, err := Start(t.Context(), Options{}); err == nil || !strings.Contains(err.Error(), "Isolate") {
		t.Errorf("outside of a node: %v", err)
	}
}

// A kubelet's configuration is the default one with what Options say.
func TestKubeletConfig(t *testing.T) {
	n := &Node{dir: "/somewhere", options: Options{Kubelet: map[string]any{"maxPods": 7, "failSwapOn": true}}}
	config, err := n.kubeletConfig()
	if err != nil || !bytes.Contains(config, []byte(`"maxPods": 7`)) || !bytes.Contains(config, []byte(`"failSwapOn": true`)) {
		t.Errorf("%s, %v", config, err)
	}
}
