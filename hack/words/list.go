package main

// A term is a word or a phrase that new text does not use, and what stands there
// instead.
type term struct{ words, write string }

// terms returns the check's list. Each form of a word is listed: "retires" is not
// found by "retire".
func terms() []term {
	return []term{
		{"anew", "again, re-creates"},
		{"beside", "next to, alongside, related"},
		{"whose", "with, of which; or two sentences"},
		{"whoever", "the operator, the kubelet, the process that"},
		{"nobody", "the operator, no process, no pod"},
		{"somebody", "the operator, another process, another controller"},
		{"anybody", "any process, any user"},
		{"withal", "also"},
		{"in vain", "without success, failed"},
		{"lest", "so that not"},
		{"at peace", "not modified"},
		{"in peace", "not modified"},
		{"a look", "a check, an observation"},
		{"a word", "a message, a name"},
		{"what there is", "what exists, the existing"},
		{"as there are many", "typical"},
		{"not looked at", "skipped"},
		{"is waited for", "waits for, with a subject"},
		{"comes and goes", "is removed, exits"},
		{"goes away", "is removed, exits"},
		{"tombstone", "pending unmount"},
		{"tombstones", "pending unmounts"},
		{"bury", "record as a pending unmount"},
		{"buries", "records as a pending unmount"},
		{"buried", "recorded as a pending unmount"},
		{"fate", "PV state"},
		{"fates", "PV states"},
		{"lent", "in use by the attach-detach controller"},
		{"teller", "status reporter"},
		{"tellers", "status reporters"},
		{"insistent", "retryable"},
		{"in doubt", "uncertain"},
		{"retire", "drain, shut down"},
		{"retires", "drains, shuts down"},
		{"retired", "drained, shut down"},
		{"retirement", "draining, shutdown"},
		{"departure", "shutdown"},
		{"verdict", "result"},
		{"verdicts", "results"},
		{"CSI driver away", "CSIDriverUnavailable"},
	}
}

// allowed is text that stays although a term is in it.
func allowed() []string {
	return []string{
		"user nobody", // the system's user of that name
		"as nobody",   // the same, and hack/as-nobody
	}
}
