package lifecycle

// missedIn is the configuration that misses a rule soonest.
func missedIn(rule string) string {
	return map[string]string{
		"released": "two volumes", "unbind": "two volumes", "drop": "two volumes", "await-attachment": "device, cluster",
		"publish": "two volumes", "fsgroup": "two volumes", "repair-unpublish": "dead targets",
		"undo-failed": "direct", "other-volume": "other volume", "claim": "two volumes", "pod-lives": "migration",
		"unproven": "expansion, node alone", "release-unwanted-volume": "device", "last-target": "one pod", "unstage": "two volumes",
		"controller-unpublish": "callouts", "unmark": "callouts", "controller-publish": "callouts", "other-secrets": "secrets",
		"unseen-direct": "direct, callers leave", "lent-taken": "migration, cluster", "bind": "two volumes",
		"repair-bring": "dead targets", "without-the-dead": "dead mounts", "undo-direct": "direct", "disagree": "two volumes",
		"driver-away": "driver away", "expanded": "expansion", "node-expand": "expansion",
		"unknown-target": "one pod", "unpublish": "two volumes", "other-stage": "migration, own stage", "unclear": "migration",
		"still-published": "dead mounts", "delete-attachment": "cluster", "device-in-use": "device", "ask-attachment": "cluster",
		"stage-dead": "dead mounts, one pod", "stage": "two volumes", "unseen": "one pod", "unclear-kubelets": "migration",
		"unclear-late": "migration", "undo-attach": "controller", "failed": "one pod", "unmounted-meanwhile": "one pod",
		"ready": "one pod", "dead-unseen": "dead targets", "mark-again": "device, cluster", "attach-driver-away": "callouts",
		"attach-claim": "callouts", "not-writable": "expansion", "controller-expand": "expansion", "note-expanded": "expansion",
		"repair-failed": "dead targets", "release-unwanted": "one pod", "reconcile-failed": "reboot", "reattach": "cluster, no stage",
		"mark": "device", "detach-device": "device, cluster", "detach-last": "cluster", "finish-detach": "cluster",
		"detach-in-use": "callouts", "unseen-target": "device", "unclear-file": "migration",
		"unclear-ended": "migration, cluster", "note-owner": "migration, device, cluster", "kubelet-has-it": "migration, device, cluster",
		"detach-not-ours": "device, cluster", "target-dead": "by hand", "buried": "one pod", "forgotten-device": "reboot",
		"still-staged": "callouts", "noted-just-now": "dead targets", "note-ailments": "dead targets",
		"pod-gone": "direct, callers leave", "stage-dead-in-use": "dead mounts", "given-up-before": "one pod",
		"expands-nothing": "expansion", "nominal": "expansion", "repair-unstage": "dead mounts, one pod",
		"unstage-not-ours": "migration, cluster", "unstage-elsewhere": "migration, own stage", "kubelet-has-ended-it": "migration, cluster",
	}[rule]
}

// spared are the rules that nothing in the model needs, and why they are there.
func spared(rule string) string {
	const (
		better  = "without it another refuses, and says less well why"
		outside = "outside of the model: "
		later   = "without it the same comes about later"
		again   = "a second line of defense, after "
		told    = "what status reports, and a second look before a repair"
	)
	return map[string]string{
		"expand-claim": outside + "nobody calls expandvolume", "expand-disagrees": outside + "nobody calls expandvolume",
		"no-controller": outside + "nobody calls expandvolume", "republish": outside + "tokens and their time",
		"detach-first": outside + "a cache that shows what was deleted", "start-over": outside + "a configuration that changes",
		"stages-no-more": outside + "a driver whose capabilities change", "no-route": better, "repair-unknown": better,
		"stage-silent": outside + "silence", "target-silent": outside + "silence", "size-unknown": outside + "what cannot be looked at",
		"attach-disagrees": outside + "two PersistentVolumes with attach: true", "device-disagrees": outside + "two PersistentVolumes with attach: true",
		"other-device": outside + "two PersistentVolumes with attach: true", "no-pod": outside + "a caller that is not the kubelet",
		"expand-driver-away": better, "grow-unused": outside + "drivers that grow only what is not in use",
		"detach-device": later, "unseen-target": later, "unclear-ended": later, "given-up-before": later, "repair-unstage": again + "stage-dead",
		"kubelet-has-ended-it": again + "unstage", "kubelet-has-it": again + "unstage-not-ours", "unstage-not-ours": again + "kubelet-has-it",
		"unstage-elsewhere": again + "other-stage", "still-published": again + "last-target", "still-staged": again + "last-target",
		"device-in-use": outside + "a kubelet that calls unmountdevice while pods have the volume", "stage-dead-in-use": better,
		"note-ailments": told, "note-repaired": told, "noted-just-now": told, "note-owner": again + "detach-not-ours, and the answer of the API server",
		"pod-gone": "without it the volume is published for a pod that is gone, until the reconciler looks", "target-dead": again + "dead-unseen",
		"attach-driver-away": better, "buried": outside + "a tombstone that is worked off while another operation runs",
		"detach-in-use": outside + "a kubelet that calls detach while pods have the volume", "expands-nothing": outside + "drivers that expand nothing",
		"nominal": outside + "drivers that expand nothing", "not-writable": outside + "an expansion where it is read-only",
		"finish-detach": again + "release-unwanted-volume", "forgotten-device": outside + "a reboot with attach: true", "mark": again + "mark-again",
		"note-expanded": "without it each pod's expandfs asks again", "ready": "without it what is mounted is asked for again",
		"repair-failed": again + "reconcile-failed", "unclear-file": again + "unclear-late", "undo-attach": later,
		"unmounted-meanwhile": outside + "a pod's directory that is wanted again after unmount",
		"grow-unused-later":   outside + "drivers that grow only what is not in use",
	}[rule]
}
