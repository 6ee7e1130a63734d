package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/flex2csi/flex2csi/test/parts"
)

const (
	// KubeletDir is the kubelet's own directory.
	KubeletDir    = "/var/lib/kubelet"
	kubeletConfig = KubeletDir + "/config.yaml"
)

// kubeletConfig is in JSON, which is YAML too. FlexVolume's directory is not in
// it: the default is what installing has to cope with.
func (n *Node) kubeletConfig() ([]byte, error) {
	config := map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		runtimeEndpoint: containerdEndpoint,
		"authentication": map[string]any{
			"anonymous": map[string]any{"enabled": false}, "webhook": map[string]any{"enabled": true},
			"x509": map[string]any{"clientCAFile": certFile},
		},
		"authorization": map[string]any{"mode": "Webhook"},
		"tlsCertFile":   certFile, "tlsPrivateKeyFile": keyFile,
		"cgroupDriver": "cgroupfs", "cgroupRoot": "/" + string(cgroups(n.dir)),
		failCgroupV1: false, "failSwapOn": false, // a developer's machine may have either
		"makeIPTablesUtilChains": false, "resolvConf": "", "clusterDNS": []string{"10.96.0.10"}, "clusterDomain": "cluster.local",
		// A developer's disk may be full, and this is no reason to kill pods.
		"imageGCHighThresholdPercent": 100, "imageGCLowThresholdPercent": 99,
		"evictionHard": map[string]string{
			"memory.available": "10Mi", "nodefs.available": "0%", "nodefs.inodesFree": "0%",
			"imagefs.available": "0%", "imagefs.inodesFree": "0%",
		},
		"nodeStatusUpdateFrequency": "4s", "fileCheckFrequency": "2s",
	}
	maps.DeleteFunc(config, func(field string, _ any) bool { return !n.has(fieldsSince()[field]) })
	maps.Copy(config, n.options.Kubelet)
	return json.MarshalIndent(config, "", "  ")
}

func (n *Node) kubelet() *parts.Part {
	args := []string{
		"--config", kubeletConfig, "--kubeconfig", kubeletConf,
		"--hostname-override", Name, "--node-ip", Address, "--v=4",
	}
	if !n.has(fieldsSince()[runtimeEndpoint]) {
		args = append(args, "--container-runtime-endpoint", containerdEndpoint)
	}
	p := n.part("kubelet", append(usualEnv(), "HOME=/root"), args...)
	p.Ready = untilWorks(p, healthy)
	p.Again = 10 * time.Second // RestartSec of kubeadm's kubelet.service
	return p
}

// healthy asks the kubelet whether it lives, where it answers by default.
func healthy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:10248/healthz", nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("the kubelet says %s", res.Status)
	}
	return nil
}

// waitReady waits until pods can run on the node.
func (n *Node) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	// A control plane's DaemonSets run here, and all others as well.
	label := []byte(`{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`)
	err := Await(ctx, "the Node object", func(ctx context.Context) error {
		_, err := n.client.CoreV1().Nodes().Patch(ctx, Name, types.MergePatchType, label, metav1.PatchOptions{})
		return err
	})
	if err == nil {
		err = Await(ctx, "the node to be ready", n.ready)
	}
	if err == nil {
		err = Await(ctx, "the service account of pods", func(ctx context.Context) error {
			_, err := n.client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("%w; the kubelet said (%s):\n%s", err, filepath.Base(n.Kubelet.Log), n.Kubelet.Tail())
	}
	return nil
}

// ready is an error as long as no pod can be on the node.
func (n *Node) ready(ctx context.Context) error {
	node, err := n.client.CoreV1().Nodes().Get(ctx, Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, t := range node.Spec.Taints {
		return fmt.Errorf("the node is tainted with %s", t.Key)
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			if c.Status == corev1.ConditionTrue {
				return nil
			}
			return fmt.Errorf("%s: %s", c.Reason, c.Message)
		}
	}
	return errors.New("the kubelet has not said so")
}
