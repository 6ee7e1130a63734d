// Package containerd is where the version of the container runtime of test/node is written down:
// make node-programs builds it from here.
package containerd
