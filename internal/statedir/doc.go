// Package statedir has the small files that outlive a process of flex2csi on a node: pending
// unmounts and the cordon of the daemon in its state directory, and the attachment locks in
// the directory of a driver.
package statedir
