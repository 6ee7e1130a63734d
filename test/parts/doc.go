// Package parts has what a cluster of real programs is made of, with or without
// a test around it: the programs as processes, the certificate that they share,
// and the way to their API server. test/controlplane and test/node put it
// together.
package parts
