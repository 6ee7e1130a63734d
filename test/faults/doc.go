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
//	make faults SEED=1234 DURATION=5m
//	FAULTS_SEED=1234 FAULTS_WORLDS=1 go test -v -run TestCampaign ./test/faults
//
// The nth world of a run has the seed of the run plus n, and worlds come in
// turns of kinds() (campaign_test.go). When something is wrong, what happened to
// the world, the driver's calls, the daemon's log and the record of the volume
// are printed; with FAULTS_KEEP=DIRECTORY all logs are kept.
//
// # The plays
//
// In other worlds one thing happens at a time (plays_test.go):
//
//   - TestKillDaemon traces the daemon, as test/crash does flexdriver, and kills
//     it in the middle of each callout of a volume's life: after each write of
//     its state, each message to the driver and each mount. Another daemon takes
//     up what is there, and the same call comes again, or its opposite, or no
//     call comes any more. With FAULTS_ALL=1 every system call that changes
//     anything is a point. flexdriver is killed likewise while it unmounts
//     without a daemon.
//   - TestHang has a volume and then a driver hang, with two hundred calls that
//     wait for them, and measures another volume or driver meanwhile.
//   - TestUpgrade replaces flexdriver, with its own install, and the daemon by
//     other builds while calls are made all the time. None may fail.
//
// # What is allowed
//
// Three things are not faults. A mount with an answer that was lost, for a pod that is
// deleted then: the kubelet has forgotten it until it is restarted ("late
// mounts"). With directPublish, what a restarted kubelet finds mounted may
// be on its way to be undone ("direct mounts taken for finished"). And a
// record that is spoilt right after a direct publish that failed, for a pod that is
// deleted then: neither its version before nor the mount table knows of it.
//
// # What is not here
//
// A power cut: SIGKILL loses nothing that a process has handed to the kernel.
// And a network: the CSI driver is on this machine.
package faults
