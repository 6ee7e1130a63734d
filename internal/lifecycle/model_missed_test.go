package lifecycle

// missedIn is the configuration that misses a rule soonest, of the rules that the model
// needs and no story tells of. The others have a scene.
func missedIn(rule string) string {
	return map[string]string{
		"released": "two volumes", "unbind": "two volumes", "drop": "two volumes", "await-attachment": "device, cluster",
		"publish": "two volumes", "fsgroup": "two volumes", "repair-unpublish": "dead targets",
		"undo-failed": "direct", "other-volume": "other volume", "record-target": "two volumes", "pod-lives": "migration",
		"unproven": "expansion, node alone", "release-unwanted-volume": "device", "last-target": "one pod", "unstage": "two volumes",
		"controller-unpublish": "callouts", "unmark": "callouts", "controller-publish": "callouts", "other-secrets": "secrets",
		"unseen-direct": "direct, callers leave", "attachment-lost": "migration, cluster", "bind": "two volumes",
		"repair-bring": "dead targets", "without-the-dead": "dead mounts", "undo-direct": "direct", "disagree": "two volumes",
		"driver-away": "driver away", "expanded": "expansion", "node-expand": "expansion",
		"unknown-target": "one pod", "unpublish": "two volumes", "other-stage": "migration, own stage", "unclear": "migration",
		"delete-attachment": "cluster", "ask-attachment": "cluster", "stage-dead": "dead mounts, one pod", "stage": "two volumes",
		"unseen": "one pod", "unclear-kubelets": "migration", "unclear-late": "migration", "failed": "one pod",
		"dead-unseen": "dead targets", "mark-again": "device, cluster", "attach-claim": "callouts", "controller-expand": "expansion",
		"release-unwanted": "one pod", "reconcile-failed": "reboot", "reattach": "cluster, no stage", "detach-last": "cluster",
		"detach-not-ours": "device, cluster", "ready": "cluster, no stage", "stage-silent": "silence", "target-silent": "silence",
		"repair-failed": "cluster", "kubelet-has-it": "migration",
	}[rule]
}

// together are rules of which one does what the other would do: a group is taken out as
// one.
func together(rule string) []string {
	if rule == "kubelet-has-it" { // without it unstage-not-ours and detach-not-ours leave the two halves
		return []string{rule, "unstage-not-ours"}
	}
	return []string{rule}
}
