// Package contract holds flexdriver to the contract of its only caller: it
// links Kubernetes' own FlexVolume plugin, operation code and volume reconciler
// and lets them drive the built binary on real volumes. It contains tests only.
//
// It is a module of its own, so that the versions of one Kubernetes release,
// and no others, are linked: go.mod is that of v1.37.1 and go.k8s136.mod that
// of v1.36.3. README.md says how to run both and which rule of the contract is
// held by which test.
//
// # When not to use it
//
// A rule that can be tested without Kubernetes' code belongs to the package
// that keeps it: this module takes minutes to compile the first time.
package contract
