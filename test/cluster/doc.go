// Package cluster tests the daemon in a real control plane: etcd, API server,
// kube-controller-manager's controllers for volumes and the external-attacher,
// with the CSI driver of the tests behind them, or one that is not ours. The
// daemons have the rights that install/rbac gives them, and the policies of
// install/policy watch over them.
//
// There is no kubelet: the tests make the callouts that it would make, and the
// objects (see test/controlplane). All nodes are this machine; each has a daemon,
// a node service of the CSI driver and a directory of its own.
package cluster
