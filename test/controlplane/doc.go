// Package controlplane starts a control plane of Kubernetes on this machine: a
// real etcd and a real kube-apiserver with RBAC, and, where a test wants them,
// kube-controller-manager with the controllers for volumes and the
// external-attacher of a CSI driver. All of it listens on loopback, keeps its
// files in a directory of its own and ends with the test.
//
//	p := controlplane.Start(t)
//	p.StartControllerManager()
//	p.CSIDriver("disk.example.com", storagev1.CSIDriverSpec{})
//	p.Node("node-1", map[string]string{"disk.example.com": "id-1"})
//	p.StartAttacher("/tmp/…/csi.sock")
//	daemon(p.Kubeconfig(controlplane.Admin))
//
// It takes two seconds to come up. Tests that can share one do so: With gives
// the same control plane to a subtest.
//
// Nothing runs in pods: there is neither a kubelet nor a scheduler. [Plane.Node]
// makes the objects that a kubelet would.
//
// [Plane.Proxy] stands between a client and the API server, counts what the
// client asks for and injects what goes wrong on the way; [Part.Kill] and
// [Part.Start] are a restart of the real thing.
//
// make control-plane builds the programs into $FLEX_PROGRAMS; test/kubernetes
// says which versions.
package controlplane
