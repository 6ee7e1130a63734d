// Package testenv gives tests a place where they may mount.
//
// A test binary that calls [Main] in TestMain runs in its own mount namespace, with
// every mount private: mounts of a test cannot be seen outside and are removed when
// the binary ends, however it ends. As root that is a
// mount namespace; as an ordinary user a user namespace comes with it, in which
// bind mounts and tmpfs work and loop devices do not.
//
// A test says what it needs with [Need] and is skipped by name where that is
// missing. FLEX_TEST_REQUIRE turns such skips into failures, so that CI notices
// the day it loses root:
//
//	FLEX_TEST_REQUIRE=mount,loop go test ./...   # these two must be there
//	FLEX_TEST_REQUIRE=all go test ./...          # nothing may be skipped
//
// [LeakCheck], which [Image] and [Kubelet] include, fails a test that leaves a
// mount, a loop device or a process behind.
//
// # When not to use it
//
// Only tests import this package. Inside the user namespace os.Getuid is 0:
// ask Need(t, "root") and never the user ID whether a test is root.
package testenv
