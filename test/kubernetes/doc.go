// Package kubernetes is where the versions of the control plane that the tests start are written down:
// make control-plane builds it from here, and make node-programs-1.28 that of another release, with
// go.k8s128.mod. hack/kubernetes-release writes these.
package kubernetes
