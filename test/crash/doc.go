// Package crash kills flexdriver with SIGKILL after each of its system calls
// and looks what is left. It contains tests only.
//
// # What is promised
//
// The kubelet takes what is mounted at a volume's directory for a finished
// mount, forgets a set-up that failed, and then calls nothing for it any more
// (Kubernetes v1.37.1, pkg/volume/util/operationexecutor/operation_generator.go,
// markVolumeErrorState). So, wherever the driver dies:
//
//  1. What can be seen at a mount point is finished: the right volume, the
//     right read-only flag, the fsGroup applied.
//  2. Without another call, nothing stays that was not there before: no mount,
//     no loop device, no process. There are two exceptions: a finished mount
//     with an answer that was lost, since no process is left to undo it; and what
//     the children of a mount program (mount.nfs, say) still finish, since
//     they must be able to outlive their parents.
//  3. The same call, repeated at once or later, succeeds at the first try, the
//     volume works, and what was written to it before is there.
//  4. Taking the volume down then leaves nothing: no mount, no loop device, no
//     process, no file that was not there before.
//
// # How
//
// A life (lives_test.go) is the callouts that the kubelet and
// kube-controller-manager make for one volume, in order. Each callout of a
// life is a victim in turn: it runs once under ptrace(2) to learn its system
// calls, then once for each of them, killed when that one returns
// (trace_test.go). A system call is a kill point if it changes the world, that
// is, anything that outlives the process (syscalls_test.go). Between two of
// these the world is the same wherever the process dies, so calls that only
// look are sampled, and calls that concern nothing but the process's own
// memory, threads and signals are left out.
//
// Programs that the driver starts (mkfs, fsck, resize2fs, …) are points as
// well: the driver is killed when such a child has made one of its writes, and
// the child must die with it. And the child is killed alone.
//
// The counts are in the log: make test-crash V=1, or go test -v. A failure names
// the life, the callout, the system call after which the driver was killed and
// what came next; go test -run TestKill/lives/ext4/new repeats one life, and
// with CRASH_STEPS=1 it lists the system calls.
//
// CRASH_ALL=1 makes every system call that looks a point too, and every write
// of every child, and follows each kill in every way. It takes a long time.
//
// # When not to use it
//
// Nothing here says what happens when the power fails: SIGKILL loses nothing
// that a process has handed to the kernel.
package crash
