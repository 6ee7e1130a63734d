// Package journal writes down how far the migration of each PersistentVolume
// is, and all that is needed to go on with it or back: the volume as it was, the
// one that takes its place, and what is being done just now. A migration can be
// killed between any two requests; who goes on with it has this and what the
// cluster shows.
//
// A record is a ConfigMap, which another machine finds days later, and nothing else
// counts. Each write of it is followed by a copy into a directory of the operator, for kubectl
// create, as of the objects: it is not read, but to say that an unfinished migration has no
// ConfigMap any more ([LostError]). A record that is read must be what was written: it has a
// digest.
//
// It holds what PersistentVolumes, claims, pods and VolumeAttachments show to
// any user that may read them, and nothing of a Secret. It knows nothing of how a
// volume is migrated, which is package migrate.
package journal
