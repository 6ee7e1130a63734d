package node

import (
	"context"
	"io"

	corev1 "k8s.io/api/core/v1"
)

// Kubectl runs kubectl as the administrator and returns what it says to stdout.
func (n *Node) Kubectl(ctx context.Context, args ...string) (string, error) {
	return n.run(ctx, "kubectl", args...)
}

// Exec runs a command in a pod's container and returns what it says to stdout.
func (n *Node) Exec(ctx context.Context, namespace, pod, container string, argv ...string) (string, error) {
	return n.Kubectl(ctx, append([]string{"exec", "--namespace", namespace, pod, "--container", container, "--"}, argv...)...)
}

// Logs is what a pod's container has said; previous: the one before it.
func (n *Node) Logs(ctx context.Context, namespace, pod, container string, previous bool) (string, error) {
	stream, err := n.client.CoreV1().Pods(namespace).
		GetLogs(pod, &corev1.PodLogOptions{Container: container, Previous: previous}).Stream(ctx)
	if err != nil {
		return "", err
	}
	defer stream.Close()
	text, err := io.ReadAll(stream)
	return string(text), err
}
