package migrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/flex2csi/flex2csi/internal/objects"
)

// A check is one row of what plan checks of a volume. The files check_*.go have the rows,
// each by what it looks at; docs/reference/checks.md has the names and what they are about (make docs).
type check struct {
	name, about string
	// when reports whether there is something to look at.
	when func(*subject) bool
	// look adds what was found. An error says that it is unknown.
	look func(*subject, context.Context, *findings) error
}

// checks are all rows, in the order in which an operator would look.
func checks() []check {
	return slices.Concat(volumeChecks(), claimChecks(), mappingChecks(), driverChecks(), secretChecks(),
		podChecks(), nodeChecks(), attachmentChecks(), ownerChecks(), claimEndChecks(), dryRunChecks())
}

// A subject is a volume that the checks look at, and what several of them need.
type subject struct {
	w       *world
	drivers *drivers
	d       *driver // of the volume; nil: the configuration does not have it
	old     *volume
	v       *PlannedVolume

	claim   *corev1.PersistentVolumeClaim
	r       *rendered            // nil: no replacement could be made
	driver  *storagev1.CSIDriver // nil: there is none
	unknown map[string]error     // what could not be read, by the check that says so
}

// When there is something to look at.
func (s *subject) isFlex() bool   { return s.old.Spec.FlexVolume != nil }
func (s *subject) isOther() bool  { return !s.isFlex() }
func (s *subject) rendered() bool { return s.r != nil }

// attaches reports whether the CSI driver's volumes are attached.
func (s *subject) attaches() bool { return attaches(s.driver) }

// attaches: without a CSIDriver object volumes are attached (pkg/volume/csi/csi_plugin.go,
// CanAttach, Kubernetes v1.37.1).
func attaches(o *storagev1.CSIDriver) bool {
	return o == nil || o.Spec.AttachRequired == nil || *o.Spec.AttachRequired
}

// errUnmapped: the configuration does not have the driver.
var errUnmapped = errors.New("the configuration has no driver")

// read reads what several checks need.
func (s *subject) read(ctx context.Context) {
	v := s.v
	v.Name, v.FlexDriver, v.Claim, v.Original = s.old.Name, s.old.flexDriver(), s.old.claim(), original(s.old)
	if !s.isFlex() {
		v.CSIDriver, v.Handle = s.old.csi()
		return
	}
	if ref := s.claimRef(); ref != nil {
		s.claim, s.unknown["claim"] = get(ctx, s.w, objects.Claims(), ref.Namespace, ref.Name)
	}
	var err error
	if s.d, err = s.drivers.find(s.old); s.d == nil {
		s.unknown["mapping"] = cmp.Or(err, errUnmapped)
		return
	}
	v.CSIDriver = s.d.config.CSIDriver
	if s.r, s.unknown["mapping"] = s.d.render(ctx, s.old); s.r == nil {
		return
	}
	v.Handle, v.Replacement, v.Changes = s.r.mapped.Handle, s.r.object, s.r.changes
	s.driver, s.unknown["csi-driver"] = get(ctx, s.w, objects.CSIDrivers(), "", v.CSIDriver)
	v.Pods, s.unknown["pods"] = s.w.usersOf(ctx, s.claim)
	v.attaches = s.attaches()
	if s.w.decides {
		s.w.decideAbout(s.r.mapped.Key(), v.nodes())
	}
}

// findings are what one check has found.
type findings struct {
	name string
	all  []Check
}

func (f *findings) add(s CheckStatus, do, evidence string, args ...any) {
	f.all = append(f.all, Check{Name: f.name, Status: s, Evidence: fmt.Sprintf(evidence, args...), Do: do})
}

func (f *findings) ok(evidence string, args ...any)         { f.add(OK, "", evidence, args...) }
func (f *findings) note(do, evidence string, args ...any)   { f.add(Note, do, evidence, args...) }
func (f *findings) decide(do, evidence string, args ...any) { f.add(Decide, do, evidence, args...) }

func (f *findings) notLive(do, evidence string, args ...any) { f.add(NotLive, do, evidence, args...) }

// unanswered is for what the API server does not say now; what it refuses to say fails.
func (f *findings) unanswered(err error) {
	status := Unanswered
	if objects.OutcomeOf(err) == objects.Refused {
		status = Fails
	}
	f.add(status, "plan again", "could not be read: %v", err)
}

func (f *findings) fails(do, evidence string, args ...any) { f.add(Fails, do, evidence, args...) }

// run makes one check.
func (c check) run(ctx context.Context, s *subject) []Check {
	f := &findings{name: c.name}
	if !c.when(s) {
		return nil
	}
	if err := c.look(s, ctx, f); err != nil {
		f.unanswered(err)
	}
	return f.all
}

// check makes the checks of a volume, and what follows from them.
func (w *world) check(ctx context.Context, all *drivers, old *volume) *PlannedVolume {
	s := &subject{w: w, drivers: all, old: old, v: &PlannedVolume{}, unknown: map[string]error{}}
	s.read(ctx)
	for _, c := range checks() {
		s.v.Checks = append(s.v.Checks, c.run(ctx, s)...)
	}
	s.v.conclude()
	if s.rendered() && s.v.Method != No && s.v.Method != Unknown {
		s.v.Steps = steps(s.v, s.r, s.attaches())
		s.v.Expect = s.expectations()
	}
	return s.v
}

// conclude finds the method from the checks.
func (v *PlannedVolume) conclude() {
	var fails, notLive, unknown []string
	for _, c := range v.Checks {
		switch c.Status {
		case Fails:
			fails = append(fails, c.Name+": "+c.Evidence)
		case NotLive:
			notLive = append(notLive, c.Name+": "+c.Evidence)
		case Unanswered:
			unknown = append(unknown, c.Name+": "+c.Evidence)
		}
	}
	switch {
	case len(fails) > 0:
		v.Method, v.Why = No, fails
	case len(unknown) > 0:
		v.Method, v.Why = Unknown, unknown
	case len(notLive) == 0 || len(v.Pods) == 0:
		v.Method = Live
	case len(v.Pods) == 1 && restartable(v.Pods[0].Owner) && !v.unready:
		v.Method, v.Why = PodRestart, notLive
	default:
		notLive = append(notLive, notOneByOne(v.Pods))
		v.Method, v.Why = Offline, notLive
	}
}

// restartable reports whether the owner of a pod re-creates it.
func restartable(owner string) bool {
	kind, _, _ := strings.Cut(owner, "/")
	return slices.Contains([]string{"StatefulSet", "Deployment", "ReplicaSet"}, kind)
}

func notOneByOne(pods []Pod) string {
	switch {
	case len(pods) > 1:
		return fmt.Sprintf("%d pods share the claim: all have to be stopped", len(pods))
	case restartable(pods[0].Owner):
		return "pod " + pods[0].Name + " cannot be restarted as long as its node is not Ready"
	}
	if pods[0].Owner == "" {
		return "pod " + pods[0].Name + " has no controller that re-creates it: create it again by hand"
	}
	return "pod " + pods[0].Name + " belongs to " + pods[0].Owner + ", which is not for flex2csi to stop"
}

// expectations are what people and their alarms will see.
func (s *subject) expectations() (all []string) {
	if s.claim == nil {
		return nil
	}
	expect := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	expect("claim %s is Lost for a moment, with the event ClaimLost (%q). Nothing is lost: it is Bound again when the volume controller looks at it, at the latest after 15 s", s.v.Claim, "Bound claim has lost its PersistentVolume. Data on the volume is lost!")
	expect("alarms on claims that are Lost, such as KubePersistentVolumeErrors, may fire; back-up tools that look at the volume at that moment find none")
	if s.v.Method == PodRestart {
		expect("the claim is Lost from before the pod is stopped until its node has let go of the volume: some seconds as a rule, and up to a minute where kube-controller-manager attaches the FlexVolume (attach: true), which looks for what to detach once a minute")
	}
	if s.v.Method != Live || len(s.v.Pods) == 0 {
		return all
	}
	expect("within about a minute the kubelet mounts the volume through its CSI plugin next to the old mount; the old one goes with its pod")
	if len(s.withGroup()) > 0 && s.noGroup() == "" {
		expect("the pod has an fsGroup: with that mount the kubelet may go through all files of the volume and give them to the group once more")
	}
	return all
}
