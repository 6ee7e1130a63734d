package escape

import (
	"cmp"
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
	grown     int // bytes that it is to have after an expansion
	// absent takes the place of what the volume names: the answer must be the same.
	absent string
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

// patience is far more than any callout takes that does not hang: ten times the deadline
// of the slowest, so that a busy machine is not taken for a driver that hangs.
const patience = time.Minute

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
		if err := w.call(watcher, a, command, o); err != nil {
			if strings.Contains(err.Error(), "argument list too long") || strings.Contains(err.Error(), "invalid argument") {
				return o, nil // no kubelet could call this either
			}
			return nil, err
		}
		if len(o.escapes) > 0 {
			return o, nil
		}
	}
	o.escapes = w.leaks(d, a)
	return o, nil
}

// call makes one callout.
func (w *world) call(watcher *trace.Watcher, a *attempt, command flex.Command, o *outcome) error {
	d := w.drivers[a.driver]
	g := w.newGuard(d, a, command)
	argv := w.argv(d, a, command)
	o.argv = append(o.argv, argv)
	r, err := watcher.Run(d.program, argv, w.environment(), patience, g)
	if err != nil {
		return err
	}
	o.reached = max(o.reached, g.reached)
	if o.escapes = g.escapes; len(o.escapes) > 0 {
		return nil
	}
	var status string
	status, o.escapes = a.judge(r)
	o.success = o.success || status == "Success"
	if what := w.obeyed(d, a, command, status); what != "" {
		o.escapes = append(o.escapes, driverProgram+" "+what)
	}
	if a.absent != "" && len(o.escapes) == 0 {
		o.escapes, err = w.tells(watcher, a, command, r.Answer)
	}
	return err
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
	device, grown := a.options["device"], strconv.Itoa(cmp.Or(a.grown, diskBytes+diskBytes/2))
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
		return append(args, argument, device, w.target(d, a.uid, a.volume), grown, strconv.Itoa(diskBytes))
	case flex.CommandExpandVolume:
		return append(args, argument, device, grown, strconv.Itoa(diskBytes))
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
	_ = os.Truncate(w.log, 0)
	if name := a.options["image"]; strings.HasPrefix(name, w.images+"/"+mine+"/new") {
		_ = os.Remove(name)
	}
}
