package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// manyPods fills the node. What each has written is there when all are.
func manyPods(t *T) {
	n := t.number("E2E_PODS", 200)
	volumes := make([]*volume, n)
	for i := range volumes {
		volumes[i] = t.volume(share(), strconv.Itoa(i), inline)
	}
	_, pid := t.daemon()
	without, before := t.memory(pid, "VmRSS"), t.calls(pid)
	began := time.Now()
	for i, v := range volumes {
		// A busy API server may not get the parameter of a policy in time, and denies then.
		t.must(t.insist(func() error { return t.tryCreate(t.crowd(i, v)) }))
	}
	t.waitAll(n)
	up := time.Since(began)
	full := t.memory(pid, "VmRSS")
	for i := 0; i < n; i += max(1, n/5) {
		text, err := os.ReadFile(fmt.Sprintf("%s/volumes/%s.d/who", volumes[i].storage(), volumes[i].handle))
		if err != nil || strings.TrimSpace(string(text)) != strconv.Itoa(i) {
			t.Errorf("volume %d has %q: %v", i, text, err)
		}
	}
	began = time.Now()
	t.deletePods()
	gone := time.Since(began)
	if _, now := t.daemon(); now != pid {
		t.Error("the daemon was started again")
	}
	after := t.calls(pid)
	t.note("%d pods ready after %.0f s, gone after %.0f s; the daemon's memory: %d MiB before, %d MiB with all, %d MiB afterwards, %d MiB at most; %s, %s",
		n, up.Seconds(), gone.Seconds(), without, full, t.memory(pid, "VmRSS"), t.memory(pid, "VmHWM"),
		perCall("mount", before, after), perCall("unmount", before, after))
}

// crowd is one of many pods. It is on the network of the node, which costs less.
func (t *T) crowd(i int, v *volume) *corev1.Pod {
	pod := t.newPod("pod-"+strconv.Itoa(i), v.at("/data"))
	pod.Spec.HostNetwork = true
	pod.Spec.Containers[0].Command[2] = fmt.Sprintf("echo %d > /data/who; %s", i, idle)
	return pod
}

// waitAll waits until n pods are ready.
func (t *T) waitAll(n int) {
	t.Helper()
	t.must(retry(5*t.patience, func() error {
		time.Sleep(time.Second) // a list of them all is no trifle
		list, err := t.client.CoreV1().Pods(t.Namespace).List(t.ctx(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		var late []error
		for i := range list.Items {
			if err := notReady(&list.Items[i]); err != nil {
				late = append(late, fmt.Errorf("pod %s: %w", list.Items[i].Name, err))
			}
		}
		if len(list.Items) != n {
			late = append(late, fmt.Errorf("there are %d pods of %d", len(list.Items), n))
		}
		return errors.Join(late...)
	}))
}

// memory is a line of /proc/PID/status, in MiB.
func (t *T) memory(pid int, field string) int {
	t.Helper()
	text, err := fileText(fmt.Sprintf("/proc/%d/status", pid))
	t.must(err)
	found := regexp.MustCompile(field + `:\s+(\d+) kB`).FindStringSubmatch(text)
	if found == nil {
		t.Fatalf("/proc/%d/status has no %s", pid, field)
	}
	kib, err := strconv.Atoi(found[1])
	t.must(err)
	return kib >> 10
}

// A tally is how many calls succeeded, and how long they took together.
type tally struct{ count, seconds float64 }

// calls asks the daemon's metrics for its callouts, by command. They are on the
// loopback interface of its pod.
func (t *T) calls(pid int) map[string]tally {
	t.Helper()
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DialContext: func(_ context.Context, network, address string) (net.Conn, error) {
			return dialIn(pid, network, address)
		}, DisableKeepAlives: true,
	}}
	response, err := client.Get("http://127.0.0.1:9898/metrics")
	t.must(err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	t.must(err)
	all := map[string]tally{}
	for _, m := range regexp.MustCompile(`(?m)^flex2csi_callout_duration_seconds_(sum|count)\{code="OK",command="(\w+)"\} (\S+)$`).FindAllStringSubmatch(string(text), -1) {
		value, err := strconv.ParseFloat(m[3], 64)
		t.must(err)
		sum := all[m[2]]
		if m[1] == "sum" {
			sum.seconds = value
		} else {
			sum.count = value
		}
		all[m[2]] = sum
	}
	return all
}

// dialIn connects from the network of a process.
func dialIn(pid int, network, address string) (net.Conn, error) {
	space, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return nil, err
	}
	defer space.Close()
	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with its goroutine
		if err := unix.Setns(int(space.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- result{err: err}
			return
		}
		conn, err := net.DialTimeout(network, address, 5*time.Second)
		done <- result{conn, err}
	}()
	r := <-done
	return r.conn, r.err
}

func perCall(command string, before, after map[string]tally) string {
	n := after[command].count - before[command].count
	if n == 0 {
		return "no " + command
	}
	return fmt.Sprintf("%.0f × %s of %.1f ms", n, command, 1000*(after[command].seconds-before[command].seconds)/n)
}
