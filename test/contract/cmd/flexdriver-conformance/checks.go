package main

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/kubernetes/pkg/volume"
)

// probeSecret stands among arguments that a driver refuses.
const probeSecret = "conformance-4f1d9c-secret"

// slowInit is when a node suffers: all volume operations wait for init
// (pkg/volume/plugins.go, refreshProbedPlugins).
const slowInit = time.Second

// checkAll does all checks. Those at the end are about every call before.
func (n *node) checkAll(r *report) {
	attach, works := n.checkInit(r)
	var plugin volume.VolumePlugin
	if works {
		var err error
		plugin, err = n.start()
		works = r.check("registration", err)
	} else {
		r.skip("init failed", "registration")
	}
	unknown := n.do("flexdriver-conformance")
	r.check("unknown callout", unknown.wants("Not supported"))
	n.checkArguments(r)
	n.checkUnmountOfNothing(r)
	switch {
	case !works:
		r.skip("Kubernetes does not register the driver", volumeChecks(true)...)
	case n.volume == nil:
		r.skip("no --volume was given", volumeChecks(attach)...)
	default:
		n.checkVolume(r, plugin, attach)
	}
	r.skip("it would change the size of the volume", "expandfs")
	n.checkCalls(r)
	n.checkSecrets(r)
	r.check("nothing left mounted", n.noMounts(n.root))
}

// do calls the driver by itself.
func (n *node) do(args ...string) *call {
	_, _ = n.runner.Command(n.executable, args...).CombinedOutput() // the call has it all
	return n.runner.last(args[0])
}

func (n *node) noMounts(dir string) error {
	if left := mountsBelow(dir); len(left) > 0 {
		return fmt.Errorf("mounted: %s", strings.Join(left, ", "))
	}
	return nil
}

// checkInit reports whether the driver attaches, and whether Kubernetes can take it.
func (n *node) checkInit(r *report) (attach, works bool) {
	c := n.do("init")
	if !r.check("init", c.wants("Success")) {
		r.skip("init failed", "capabilities", "time of init")
		return true, false
	}
	a, _ := c.answer() // read above
	attach, err := capabilities(a.Capabilities)
	if works = err == nil; works {
		r.add(ok, "capabilities", "attach %v", attach)
	} else {
		r.check("capabilities", err)
	}
	if c.took > slowInit {
		r.add(notOK, "time of init", "%v, and all volume operations of the node wait for it", c.took.Round(time.Millisecond))
	} else {
		r.add(ok, "time of init", "")
	}
	return attach, works
}

// capabilities returns whether the driver attaches, which is the default
// (driver-call.go, defaultCapabilities).
func capabilities(text json.RawMessage) (attach bool, err error) {
	if string(text) == "null" {
		return true, errors.New("they are null, of which the kubelet dies")
	}
	known := struct {
		Attach, SELinuxRelabel, FSGroup, SupportsMetrics, RequiresFSResize bool
	}{Attach: true}
	if len(text) > 0 {
		err = json.Unmarshal(text, &known)
	}
	return known.Attach, err
}

// checkArguments calls mount and unmount as no kubelet should. The kubelet drops the error
// when it cannot make the JSON argument (attacher.go), and then calls without it.
func (n *node) checkArguments(r *report) {
	dir := n.podDir("arguments")
	broken := fmt.Sprintf(`{"kubernetes.io/secret/probe":%q,`, base64.StdEncoding.EncodeToString([]byte(probeSecret)))
	for _, tt := range []struct {
		name string
		args []string
	}{
		{"mount without arguments", []string{"mount"}},
		{"mount without options", []string{"mount", dir}},
		{"mount with broken JSON", []string{"mount", dir, broken}},
		{"mount with options that are no JSON", []string{"mount", dir, "no-json"}},
		{"unmount without arguments", []string{"unmount"}},
	} {
		if err := os.MkdirAll(dir, 0o750); err != nil {
			r.add(notTried, tt.name, "%v", err)
			continue
		}
		a, err := n.do(tt.args...).answer()
		switch {
		case err != nil:
		case a.Status == "Not supported":
			r.add(notTried, tt.name, "the driver leaves %s to the kubelet", tt.args[0])
			continue
		case a.Status != "Failure":
			err = fmt.Errorf("answers %q, want \"Failure\"", a.Status)
		default:
			err = n.noMounts(n.root)
		}
		r.check(tt.name, err)
		n.takeAway(dir)
	}
}

// checkUnmountOfNothing: the kubelet calls unmount for each directory that it finds, after a
// reboot, too, and keeps a pod Terminating until it succeeds.
func (n *node) checkUnmountOfNothing(r *report) {
	const name = "unmount of what is not mounted"
	dir := n.podDir("nothing")
	if err := os.MkdirAll(dir, 0o750); err != nil {
		r.add(notTried, name, "%v", err)
		return
	}
	n.checkUnmounts(r, name, "unmount", dir)
	n.takeAway(dir)
}

// checkUnmounts is ok if a tear-down succeeds.
func (n *node) checkUnmounts(r *report, name string, args ...string) {
	c := n.do(args...)
	if a, err := c.answer(); err == nil && a.Status == "Not supported" {
		r.add(notTried, name, "the driver leaves %s to the kubelet", args[0])
		return
	}
	r.check(name, c.wants("Success"))
}

func (n *node) podDir(pod string) string {
	return filepath.Join(n.root, "pods", "uid-"+pod, "volumes", strings.ReplaceAll(n.driver, "/", "~"), "data")
}

// checkCalls holds every call to the rules without exception.
func (n *node) checkCalls(r *report) {
	var object, status, streams, deadline []string
	for _, c := range n.runner.calls {
		switch _, err := c.answer(); {
		case c.late:
			deadline = append(deadline, c.args[0])
			continue
		case err != nil:
			object = append(object, err.Error())
		}
		if c.err != nil {
			status = append(status, fmt.Sprintf("%s: %v", c.args[0], c.err))
		}
		if c.held {
			streams = append(streams, c.args[0])
		}
	}
	one := func(name, reason string, found []string) {
		var err error
		if slices.Sort(found); len(found) > 0 {
			err = fmt.Errorf("%s (%s)", strings.Join(slices.Compact(found), "; "), reason)
		}
		r.check(name, err)
	}
	one("one JSON object, always", "the kubelet takes anything else for a failure", object)
	one("exit status 0, always", "with another and a Failure the kubelet logs all arguments, secrets included", status)
	one("streams closed", "a child keeps them open, and the kubelet waits for it", streams)
	one("deadline", "no answer after "+n.runner.deadline.String(), deadline)
}

// checkSecrets looks for secrets in answers, which become events of the pod, and in the log
// of Kubernetes' code.
func (n *node) checkSecrets(r *report) {
	secrets := []string{probeSecret}
	if n.volume != nil {
		for _, secret := range n.volume.Secrets {
			secrets = append(secrets, secret)
		}
	}
	var outputs strings.Builder
	for _, c := range n.runner.calls {
		outputs.WriteString(c.output)
	}
	for _, place := range []struct{ name, text string }{
		{"no secret in an answer", outputs.String()},
		{"no secret in the kubelet's log", n.log.String()},
	} {
		var err error
		for _, secret := range secrets {
			if hasSecret(place.text, secret) {
				err = errors.New("there is one, or its base64")
			}
		}
		r.check(place.name, err)
	}
}

func hasSecret(text, secret string) bool {
	const shortest = 4 // less is found by chance
	return len(secret) >= shortest && (strings.Contains(text, secret) || strings.Contains(text, base64.StdEncoding.EncodeToString([]byte(secret))))
}
