// Package kubernetes is where the versions of the control plane that the tests start are written down:
// make control-plane builds it from here.
package kubernetes
