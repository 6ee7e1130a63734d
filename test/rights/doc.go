// Package rights compares what flex2csi may do in a cluster: the tables of
// docs/rbac.md, the manifests in install, and the requests that the API server has
// written into its audit log.
package rights
