// Package hostfile reads, writes and locks files of the node on which much depends: files that
// survive a power failure (durable.go), that only root can have changed (trust.go), and locks
// between processes, which the kernel releases when a process ends (filelock.go).
package hostfile
