package escape

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/test/trace"
)

// An attempt is what one author of a pod tries: the fields that he may write, and the
// callouts that the kubelet makes of them.
type attempt struct {
	kind   string // what is tried, for the count
	driver int    // which of the world's

	options   map[string]string
	fsType    string
	readOnly  bool
	fsGroup   bool
	secrets   map[string]string
	volume    string // the volume's name
	pod       string
	namespace string
	uid       string
	raw       string // appended to the JSON object, inside: a second field of a name
	calls     []flex.Command
	// flip is a name that leads to another place all the time while the calls run.
	flip string
	ways []string // "encoded" and "swapped", for the count
}

// An outcome is what became of an attempt.
type outcome struct {
	escapes []string
	reached stage
	success bool
	argv    [][]string
}

// patience is far more than any callout takes that does not hang.
const patience = 20 * time.Second

func (w *world) environment() []string {
	if w.lenient {
		return []string{"PATH=/usr/sbin:/usr/bin"}
	}
	return []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:" + w.scratch + "/bin",
		"HOME=/root", "LANG=C.UTF-8", "ESCAPE=" + mark,
		"MKE2FS_CONFIG=" + w.host + "/mke2fs.conf", "BLKID_CONF=" + w.host + "/blkid.conf", "LIBMOUNT_FSTAB=" + w.host + "/shadow",
	}
}

// try makes an attempt. An error is one of the test itself.
func (w *world) try(watcher *trace.Watcher, a *attempt) (*outcome, error) {
	d := w.drivers[a.driver]
	o := &outcome{}
	if a.flip != "" {
		stop := w.swap(a.flip)
		defer stop()
	}
	defer w.takeDown(d, a)
	for _, command := range a.calls {
		g := &guard{w: w, driver: d, command: command, programs: map[int]string{}, stubs: map[int]bool{}, unshared: map[int]bool{}}
		if command == flex.CommandMount {
			g.namespace, g.secrets = a.namespace, a.secrets
		}
		argv := w.argv(d, a, command)
		o.argv = append(o.argv, argv)
		r, err := watcher.Run(d.program, argv, w.environment(), patience, g)
		if err != nil {
			if strings.Contains(err.Error(), "argument list too long") || strings.Contains(err.Error(), "invalid argument") {
				return o, nil // no kubelet could call this either
			}
			return nil, err
		}
		o.reached = max(o.reached, g.reached)
		o.escapes = append(o.escapes, g.escapes...)
		if len(o.escapes) > 0 {
			return o, nil
		}
		var status string
		status, o.escapes = a.judge(r)
		o.success = o.success || status == "Success"
		if len(o.escapes) > 0 {
			return o, nil
		}
	}
	return o, nil
}

// judge holds an answer to the rules.
func (a *attempt) judge(r *trace.Watched) (status string, escapes []string) {
	var answer struct{ Status, Message string }
	decoder := json.NewDecoder(bytes.NewReader(r.Answer))
	if err := decoder.Decode(&answer); err != nil || decoder.More() {
		return "", []string{fmt.Sprintf("answer is not one JSON object: %q (late: %t, status %#x)", cut(r.Answer), r.Late, r.Status)}
	}
	if r.Late || r.Status != 0 {
		escapes = append(escapes, fmt.Sprintf("answer came with status %#x, late: %t", r.Status, r.Late))
	}
	if bytes.Contains(r.Answer, []byte(canary)) && !a.contains(canary) {
		escapes = append(escapes, fmt.Sprintf("answer has the content of a canary: %q", cut(r.Answer)))
	}
	for key, secret := range a.secrets {
		if shows(string(r.Answer), secret) {
			escapes = append(escapes, fmt.Sprintf("answer has the secret %s: %q", key, cut(r.Answer)))
		}
	}
	return answer.Status, escapes
}

// shows reports whether a text has a secret in it, or the part that cannot be guessed.
func shows(text, secret string) bool {
	guess := regexp.MustCompile(`hunter-[0-9a-f]{16}`).FindString(secret)
	return guess != "" && (strings.Contains(text, guess) || strings.Contains(text, base64.StdEncoding.EncodeToString([]byte(secret))))
}

func cut(text []byte) []byte { return text[:min(len(text), 400)] }

// contains: the attacker has said it himself.
func (a *attempt) contains(text string) bool {
	return strings.Contains(fmt.Sprint(a.options, a.fsType, a.secrets), text)
}

// argv are the arguments of a callout as the kubelet has them.
func (w *world) argv(d *driver, a *attempt, command flex.Command) []string {
	argument := a.json(command)
	device := a.options["device"]
	args := []string{d.program, string(command)}
	switch command {
	case flex.CommandMount:
		return append(args, w.target(d, a.uid, a.volume), argument)
	case flex.CommandMountDevice:
		return append(args, w.deviceMount(d, a.volume), device, argument)
	case flex.CommandUnmount:
		return append(args, w.target(d, a.uid, a.volume))
	case flex.CommandUnmountDevice:
		return append(args, w.deviceMount(d, a.volume))
	case flex.CommandAttach, flex.CommandIsAttached:
		return append(args, argument, "node-1")
	case flex.CommandWaitForAttach:
		return append(args, device, argument)
	case flex.CommandDetach:
		return append(args, a.volume, "node-1")
	case flex.CommandExpandFS:
		return append(args, argument, device, w.target(d, a.uid, a.volume), strconv.Itoa(diskBytes+diskBytes/2), strconv.Itoa(diskBytes))
	case flex.CommandExpandVolume:
		return append(args, argument, device, strconv.Itoa(diskBytes+diskBytes/2), strconv.Itoa(diskBytes))
	}
	return append(args, argument)
}

// json is the options as the kubelet writes them. Kubernetes refuses keys of its own
// among those of the user, so a user's never win (raw is for what it might overlook).
func (a *attempt) json(command flex.Command) string {
	all := maps.Clone(a.options)
	if all == nil {
		all = map[string]string{}
	}
	all[flex.OptionFSType], all[flex.OptionPVOrVolumeName] = a.fsType, a.volume
	all[flex.OptionReadWrite] = map[bool]string{true: "ro", false: "rw"}[a.readOnly]
	if command == flex.CommandMount {
		all[flex.OptionPodName], all[flex.OptionPodNamespace], all[flex.OptionPodUID] = a.pod, a.namespace, a.uid
		all[flex.OptionServiceAccountName] = "default"
		if a.fsGroup {
			all[flex.OptionFSGroup] = "2000"
		}
		for key, value := range a.secrets {
			all[flex.OptionSecretPrefix+key] = base64.StdEncoding.EncodeToString([]byte(value))
		}
	}
	var b strings.Builder
	for i, key := range slices.Sorted(maps.Keys(all)) {
		if i > 0 {
			b.WriteByte(',')
		}
		name, _ := json.Marshal(key)
		value, _ := json.Marshal(all[key])
		fmt.Fprintf(&b, "%s:%s", name, value)
	}
	return "{" + b.String() + a.raw + "}"
}

// takeDown removes what an attempt has mounted and made.
func (w *world) takeDown(d *driver, a *attempt) {
	pod := w.kubelet + "/pods/" + a.uid
	for _, dir := range []string{w.target(d, a.uid, a.volume), w.deviceMount(d, a.volume)} {
		for range 10 {
			if unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) != nil {
				break
			}
		}
		_ = os.Remove(dir)
	}
	if a.uid != ownPod && a.uid != otherPod {
		_ = os.RemoveAll(pod)
	}
	if name := a.options["image"]; strings.HasPrefix(name, w.images+"/"+mine+"/new") {
		_ = os.Remove(name)
	}
}
