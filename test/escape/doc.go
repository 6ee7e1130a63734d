// Package escape attacks flexdriver as the author of a pod would who wants what is
// not his: it makes option sets, one in a hundred thousand after the other, calls the
// installed program with them as the kubelet does, and watches by system calls that it
// touches nothing but what it may. It contains tests only.
//
// # Who attacks
//
// A user who writes the flexVolume of a pod: its options, fsType, readOnly and
// secretRef, the pod's name and namespace within Kubernetes' grammar; and who has
// volumes already, in which there are programs, images, symbolic links, fifos, sockets
// and device files, some of them swapped while a call runs. The rest of a call is the
// kubelet's.
//
// # What must not happen
//
// Rules say what is allowed, and all else is an escape (rules_*_test.go):
//
//   - files: what is opened for reading or writing, made, linked, renamed or removed;
//   - programs: which are run, in an empty directory, with which environment;
//   - mounts: from what, of which types, with which options; what is behind a loop device;
//   - sizes above the bounds, of a volume, of a namespace and of the node;
//   - locks of what the driver may not attach;
//   - the answer: one JSON object, without secrets and without the content of a canary, and
//     the same whether there is what the attacker may not know of, or not;
//   - logs and state: no secrets.
//
// What breaks a rule is ended before the kernel does it. The tests run in a mount
// namespace where the machine's own files are read-only and its disks are not there.
//
// # How
//
// grammar_test.go makes option sets that are valid, with real spellings of options;
// poison_test.go spoils one field of most of them. So most attempts get far. Each tenth is
// the next of attacks_test.go: what has worked once, however short the campaign is. Swap is
// left out: swapon(2) on a loop device can stop the machine.
// The tests print how many they have tried, by kind, and how many of these have got
// as far as a mount or a program. An attempt follows from a seed and its number:
//
//	make test-escape                                         # 3,000
//	ESCAPE_COUNT=5000 ESCAPE_SEED=7 go test ./test/escape    # which, and how many
//	ESCAPE_SEED=7 ESCAPE_AT=4711 go test -v ./test/escape    # that one again
//
// An escape is reported with the shortest calls that still have it. That the suite
// finds escapes is what make test-escape-sabotage shows: see test/escape/sabotage.
//
// # When not to use it
//
// What the daemon does with a call is not watched, only what flexdriver does with
// the daemon and without it.
package escape
