// Package journal writes down how far the migration of each PersistentVolume
// is, and all that is needed to go on with it or back: the volume as it was, the
// one that takes its place, and what is being done just now. A migration can be
// killed between any two requests; who goes on with it has this and what the
// cluster shows.
//
// It is kept in two places: [Disk], a directory of who migrates, and [Cluster],
// ConfigMaps that another machine finds days later. [Both] writes both.
//
// It holds what PersistentVolumes, claims, pods and VolumeAttachments show to
// whoever may read them, and nothing of a Secret. It knows nothing of how a
// volume is migrated, which is package migrate.
package journal
