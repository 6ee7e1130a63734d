package handoff_test

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flex2csi/flex2csi/internal/daemon"
	"github.com/flex2csi/flex2csi/internal/handoff"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

const (
	pod    = "/k/pods/1/volumes/example.com~disk/data"
	global = "/k/plugins/kubernetes.io/flexvolume/example.com/disk/mounts/data"
)

// callouts are all that go to the daemon.
func callouts() [][]string {
	return [][]string{
		{"attach", "{}", "node"},
		{"isattached", "{}", "node"},
		{"waitforattach", "csi:1", "{}"},
		{"mountdevice", global, "csi:1", "{}"},
		{"mount", pod, `{"kubernetes.io/secret/password":"c2VjcmV0","a":"b"}`},
		{"expandvolume", "{}", global, "2", "1"},
		{"expandfs", "{}", "csi:1", pod, "2", "1"},
		{"unmount", pod},
		{"unmountdevice", global},
		{"detach", "data", "node"},
	}
}

// TestHandOver: the arguments cross as they are, and so does the answer.
func TestHandOver(t *testing.T) {
	n := newNode(t)
	yes := true
	n.daemon(flex.DriverStatus{Status: flex.StatusSuccess, Device: "csi:1", Attached: &yes})
	for i, argv := range callouts() {
		status := n.wantSuccess(argv...)
		r := n.seen()[i]
		if diff := cmp.Diff(argv, r.Argv); diff != "" || r.Driver != "example.com/disk" {
			t.Errorf("sent for %s (-want +got):\n%s", r.Driver, diff)
		}
		// The daemon answers before we give up.
		if limit := flex.DefaultTimeout(flex.Command(argv[0])); r.Timeout() >= limit || r.Timeout() < limit/2 {
			t.Errorf("%s: the daemon gets %v of %v", argv[0], r.Timeout(), limit)
		}
		wantDevice := argv[0] == "attach" || argv[0] == "waitforattach"
		if (status.Device == "csi:1") != wantDevice || (status.Attached != nil) != (argv[0] == "isattached") {
			t.Errorf("%s: %+v", argv[0], status)
		}
	}
}

// TestFailure: the class and the words are the daemon's, and the request is
// named, however long the words are.
func TestFailure(t *testing.T) {
	request := regexp.MustCompile(`\(request ([0-9a-f]{16})\)`)
	for _, message := range []string{"the disk is busy", strings.Repeat("long – ", 500)} {
		n := newNode(t)
		n.daemon(flex.Failure(flex.Errorf(flex.CodeAborted, "%s", message)))
		for i, argv := range callouts() {
			answer := string(n.wantFailure(flex.CodeAborted, argv...).Encode())
			found := request.FindStringSubmatch(answer)
			if found == nil || found[1] != n.seen()[i].ID || !strings.Contains(answer, message[:10]) {
				t.Errorf("%s: %s", argv[0], answer)
			}
		}
	}
}

// TestNeverNotSupported: the kubelet would remember that. What is never
// supported does not reach the daemon.
func TestNeverNotSupported(t *testing.T) {
	n := newNode(t)
	n.daemon(flex.DriverStatus{Status: flex.StatusNotSupported, Code: flex.CodeUnimplemented})
	for _, argv := range callouts() {
		status := n.wantFailure(flex.CodeFailedPrecondition, argv...)
		if !strings.Contains(status.Message, "does not know "+argv[0]) {
			t.Errorf("%s: %s", argv[0], status.Message)
		}
	}
	before := len(n.seen())
	for _, argv := range [][]string{{"getvolumename", "{}"}, {"nonsense"}} {
		if status := n.call(argv...); status.Status != flex.StatusNotSupported {
			t.Errorf("%v: %+v", argv, status)
		}
	}
	n.wantSuccess("init")
	if after := len(n.seen()); after != before {
		t.Errorf("%d requests for what the daemon has nothing to do with", after-before)
	}
}

// TestNoDaemon: all but unmount wait for it to come back.
func TestNoDaemon(t *testing.T) {
	t.Parallel()
	for _, argv := range callouts() {
		if argv[0] == "unmount" {
			continue
		}
		t.Run(argv[0], func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			status := n.wantFailure(flex.CodeUnavailable, argv...)
			if !strings.Contains(status.Message, "does not listen at "+n.socket) {
				t.Error(status.Message)
			}
			if left, _ := filepath.Glob(n.stateDir + "/*"); len(left) > 0 {
				t.Errorf("%s left %v", argv[0], left)
			}
		})
	}
}

// TestDriverByPath: by hand, without a name, the path names the driver.
func TestDriverByPath(t *testing.T) {
	n := newNode(t)
	n.daemon(flex.DriverStatus{Status: flex.StatusSuccess})
	argv := []string{"unmountdevice", global}
	b := &handoff.Backend{Argv: argv, Socket: n.socket}
	if status := flex.Run(t.Context(), b.Driver(), argv); status.Status != flex.StatusSuccess || n.seen()[0].Driver != "example.com/disk" {
		t.Errorf("%+v, %+v", status, n.seen())
	}
	argv = []string{"attach", "{}", "node"}
	b.Argv = argv
	if status := flex.Run(t.Context(), b.Driver(), argv); status.Code != flex.CodeInvalidArgument || !strings.Contains(status.Message, "--driver") {
		t.Errorf("%+v", status)
	}
}

// TestPlan: the daemon gets no call, and the plan has no secret.
func TestPlan(t *testing.T) {
	n := newNode(t)
	n.daemon(flex.DriverStatus{Status: flex.StatusSuccess})
	for _, argv := range callouts() {
		call, err := flex.ParseCall(argv)
		if err != nil {
			t.Fatal(err)
		}
		b := &handoff.Backend{Name: "example.com/disk", Argv: argv, Socket: n.socket, StateDir: n.stateDir}
		steps, err := b.Plan(t.Context(), call)
		text := strings.Join(steps, "\n")
		if err != nil || !strings.Contains(text, argv[0]+" ") || strings.Contains(text, "c2VjcmV0") || strings.Contains(text, "pending unmount") != (argv[0] == "unmount") {
			t.Errorf("%s: %v\n%s", argv[0], err, text)
		}
	}
	if seen := n.seen(); len(seen) > 0 {
		t.Errorf("the daemon heard of it: %+v", seen)
	}
}

// TestShortPatience: a deadline shorter than the reserve is no negative one.
func TestShortPatience(t *testing.T) {
	n := newNode(t)
	n.daemon(flex.DriverStatus{Status: flex.StatusSuccess})
	argv := []string{"unmountdevice", global}
	b := &handoff.Backend{Name: "example.com/disk", Argv: argv, Socket: n.socket}
	d := b.Driver()
	d.Timeout = func(flex.Command) time.Duration { return 500 * time.Millisecond }
	if status := flex.Run(t.Context(), d, argv); status.Status != flex.StatusSuccess {
		t.Errorf("%+v", status)
	}
}

// TestController: what kube-controller-manager calls goes to the controller
// where there is one, and nothing else does.
func TestController(t *testing.T) {
	n := newNode(t)
	n.controllerSocket = filepath.Join(filepath.Dir(n.socket), ".controller")
	yes := true
	n.daemon(flex.DriverStatus{Status: flex.StatusSuccess, Device: "node", Attached: &yes})
	for _, argv := range callouts() {
		n.wantSuccess(argv...) // there is no controller: the node gets all
	}
	if len(n.seen()) != len(callouts()) {
		t.Errorf("the node has seen %d calls", len(n.seen()))
	}
	n.listen(n.controllerSocket, flex.Failure(flex.Errorf(flex.CodeAborted, "the controller says no")))
	for _, argv := range callouts() {
		switch argv[0] {
		case "attach", "isattached", "detach":
			n.wantFailure(flex.CodeAborted, argv...)
		default:
			n.wantSuccess(argv...)
		}
	}
}

// TestControllerAway: the driver waits for a controller that was there, and never takes
// it for none: the daemon of the node knows nothing of other nodes. Where there was
// none, people are told that one was looked for.
func TestControllerAway(t *testing.T) {
	n := newNode(t)
	n.controllerSocket = filepath.Join(filepath.Dir(n.socket), ".controller")
	if status := n.wantFailure(flex.CodeUnavailable, "attach", "{}", "node"); !strings.Contains(status.Message, n.controllerSocket) || !strings.Contains(status.Message, n.socket) {
		t.Errorf("the message is %s", status.Message)
	}
	l, err := daemon.Listen(n.controllerSocket)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	n.daemon(flex.DriverStatus{Status: flex.StatusSuccess})
	if status := n.wantFailure(flex.CodeUnavailable, "detach", "data", "node"); !strings.Contains(status.Message, n.controllerSocket) {
		t.Errorf("the message is %s", status.Message)
	}
	n.wantSuccess("unmount", pod)
}
