// Package removal lets the kubelet's own code delete pods under volumes that are directories
// of the kubelet's filesystem. Kubelets before 1.30 do not see such a mount, and would
// delete what the user has in the volume.
//
// The code is that of three releases (test/removepod), each a program that the test builds.
package removal
