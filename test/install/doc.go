// Package install tests the manifests in install/: that kustomize and Helm make
// the same of them, and what they make. It is a module of its own, as Helm links
// half of Kubernetes.
package install
