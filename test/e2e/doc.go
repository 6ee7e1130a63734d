// Package e2e proves that what the project installs works: on a node with a real
// kubelet and containerd, in a real control plane, from the project's own image
// and manifests, with real CSI drivers in pods.
//
//	make e2e                      # both versions of Kubernetes
//	make e2e SCENARIO=subpath     # those with a matching name
//	make e2e KUBERNETES=1.28      # one version
//
// [TestScenarios] starts one node (package test/node) and runs all scenarios on
// it. A scenario is a function that says what it looks at, in a namespace of its
// own. Those in "shared" run side by side; those in "alone" come after them, one
// by one, since they kill, restart or remove what all use. A release that lacks what
// a scenario needs leaves it out, and the table says why.
//
// After each scenario nothing of it may be left: no mount, loop device,
// VolumeAttachment, record, pod directory or claim, and the CSI driver must have
// been called for the reverse of all that it did (leaks_test.go). A scenario that
// fails leaves what one wants to see in bin/e2e/VERSION/SCENARIO. At the end there
// is a table in bin/e2e/VERSION/table.txt.
//
// The test itself runs in the namespaces of the node: /var/lib/kubelet is the
// node's, and mounts of a test are visible only there.
package e2e
