// Package faults lets everything around a volume fail, and looks whether the
// bridge stays right. It contains tests only, with real processes: flex2csi
// serve, the example CSI driver, and flexdriver.
//
// # The campaign
//
// A world is a node of its own, in a mount namespace of its own: a kubelet's
// directory, a CSI driver, a daemon. A model of the kubelet and of
// kube-controller-manager (kubelet_test.go, device_test.go, attach_test.go)
// makes, side by side, the callouts of many pods as Kubernetes v1.37.1 would:
// it forgets what failed to be set up, skips what is a mount point, tries
// again, and finds out after a restart what it had from its directories alone.
// Meanwhile faults happen (faults_test.go): processes are killed, the driver
// is late or says the wrong thing, the disk is full, files are torn, clocks
// jump, the node reboots.
//
// What has to hold at any time: no Success without the mount, no volume in the
// place of another, a pod keeps its mount while it runs. After each round the
// faults end, and then (check_test.go): all pods get their volumes, and the
// driver has exactly these; when all pods are gone nothing is left anywhere;
// and the driver was called in the order of the CSI specification, for one
// volume one call at a time (order_test.go).
//
// A world prints its seed. The same seed gives the same pods, volumes, rules
// and faults, but what meets what is up to the scheduler:
//
//	make faults SEED=1234
//	FAULTS_SEED=1234 FAULTS_WORLDS=1 go test -v -run TestCampaign ./test/faults
//
// # What is not here
//
// A power cut: SIGKILL loses nothing that a process has handed to the kernel.
// And a network: the CSI driver is on this machine.
package faults
