// Package node starts a whole Kubernetes on this machine: the control plane (etcd,
// API server, controller manager, scheduler) and one node with containerd and a
// kubelet. All of them are the real programs with what a cluster has by default:
// RBAC, the Node authorizer, ServiceAccounts, Pod Security admission.
//
//	func main() { os.Exit(node.Isolate(dir, os.Stderr, run)) }
//
//	func run() int {
//		n, err := node.Start(ctx, node.Options{})
//		…
//		n.Import(ctx, "bin/flex2csi-image.tar")
//		n.Kubectl(ctx, "apply", "-k", "install/overlays/kubeadm")
//		n.Reboot(ctx)
//	}
//
// [Isolate] makes a machine of its own for it, out of namespaces: the program is
// executed once more in there, and sees what a program on a real node sees, at
// the places where it is on a real node: /var/lib/kubelet, /run/containerd,
// /etc/kubernetes. What is written goes to the node's directory (the rest of the
// machine's files can be seen and stays as it is), the network has the node's
// address, pods and nothing else, and with the program all of it ends.
//
// There are no registry, no DNS and no kube-proxy: images are imported, and of
// services only the API server's can be reached at its address.
//
// make node-programs builds the programs into $FLEX_PROGRAMS, make
// node-programs-1.28 those of another release. test/node/README.md says how to play with
// a node by hand.
package node
