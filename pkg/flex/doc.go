// Package flex is the FlexVolume protocol of Kubernetes: what a driver is asked
// and how it answers. With it a driver is one function and one line of
// main; example_test.go is one.
//
// # Drivers
//
// A FlexVolume driver is an executable that the kubelet, and for some callouts
// kube-controller-manager, runs once per callout:
//
//	<plugin directory>/<vendor>~<driver>/<driver> mount /var/lib/kubelet/pods/… '{"kubernetes.io/fsType":"ext4",…}'
//
// It answers with one JSON object on its standard output and ends:
//
//	{"status":"Success"}
//
// # A call from end to end
//
// [Main], which is a [Program], takes file descriptors 1 and 2 away and catches signals.
// [Run] looks up whether the [Driver] has the callout, parses the
// arguments into a [Call] ([ParseCall], [ParseOptions]), runs the driver's Handle under
// a deadline and turns what it returns into a [DriverStatus], redacted
// ([Redactor]). [DriverStatus.Encode] makes the one object of it.
//
// A program with something to do before that, such as reading a configuration, or with
// flags of its own, is a Program. A test needs Run only.
//
// # Flags for people
//
// Before the callout every driver takes --log-file FILE (or "journal"), -v, --timeout,
// --dry-run if it has a Plan, --exit-code and --help. The log has each answer, and what the
// driver tells [Log]; secrets are removed from both. The kubelet passes no flags: a driver
// that logs the kubelet's calls is a [Program] and calls [Invocation.Log].
//
// # Guarantees
//
//   - Whatever happens in Handle, the caller reads one valid object and
//     nothing else: an error, a panic, a deadline, a signal, a Handle that
//     never returns, a library that logs, a child that writes or lives on. Three things
//     leave no answer, and the kubelet logs all arguments then, secrets included:
//     os.Exit, log.Fatal, and a panic in a goroutine that Handle has started.
//   - The exit status is 0 whatever the answer. With any other the kubelet logs
//     all arguments, secrets included.
//   - "Not supported" is the answer only for what a driver never does, because the
//     kubelet remembers it.
//   - Secrets cannot be printed ([Secret]), and are taken out of messages by
//     value and by key. [Main] hides them in /proc/PID/cmdline, a millisecond or two
//     after the process has begun.
//   - Arguments are checked: their number, paths, names, sizes, and JSON values
//     that are no strings. Handle sees no relative path, and no newline in one.
//     Options.User is not checked: in an inline volume the pod's author wrote it. Allow
//     names only, or open paths below a root, as pkg/mounter does.
//   - Two things that Kubernetes changed over time: both keys of the fsGroup
//     and both orders of isattached's arguments.
//
// # Duties of the driver
//
// See [Driver] and the constants of [Command]. Above all: callouts come again
// after success and after failure, and must succeed then; a set-up that fails
// must leave no mount behind; a tear-down must need only the path; and
// Handle must end when its context ends.
//
// With Attach false a driver needs mount, unmount, and expandfs, if only to refuse.
// README.md has the rest: build, install, test.
//
// # When not to use it
//
// For new storage: write a CSI driver. To call FlexVolume drivers: this is the
// other end.
//
// Sources are cited as of Kubernetes v1.37.1, pkg/volume/flexvolume.
package flex
