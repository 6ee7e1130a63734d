// Package migrate turns FlexVolume PersistentVolumes into CSI ones in place: the
// object is replaced by one of the same name whose claimRef has the claim's UID,
// and the claim binds to it again. docs/migrate.md tells people how.
//
// It is plain Go over the few requests of [Reader]; internal/kube makes them.
// [Planner] looks at the cluster and says for each volume what it would become
// ([render]), what was looked at and found ([Check]), and what follows
// ([Verdict]). A plan changes nothing.
//
// Objects are JSON here and no Go types: the replacement keeps the fields that
// the old one has, also those that are newer than this program, and the old one
// can be put back byte for byte.
package migrate
