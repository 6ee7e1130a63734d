package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/flex2csi/flex2csi/internal/migrate/journal"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// Choose says which volumes of a plan Apply migrates with these options, and
// which are left, and why; those of unfinished are resumed or rolled back.
func Choose(p *Plan, o Options, unfinished ...string) (tasks []Task, left []Result) {
	accept := o.accepted()
	for _, v := range p.Volumes {
		mode, why := modeFor(v, o.Mode)
		switch {
		case slices.Contains(unfinished, v.Name):
			why = "a migration of it was begun and is not finished: resume it or roll it back"
		case why == "":
			why = undecided(v, accept)
		}
		if why == "" && mode == journal.Rolling {
			why = graceTooLong(v, o.timeout())
		}
		if why != "" {
			outcome := Left
			if v.Method == Unknown {
				outcome = Undecided
			}
			left = append(left, Result{Volume: v.Name, Claim: v.Claim, Direction: journal.ToCSI, Outcome: outcome, Stage: journal.Planned, Why: why})
			continue
		}
		tasks = append(tasks, Task{Volume: v, Mode: mode})
	}
	return tasks, left
}

// Decisions are the checks that can be accepted, in the order of docs/migrate.md.
func Decisions() []string {
	return []string{"owners", "csi-driver", "node", "secrets", "reclaim-policy", "mapping", "access-mode", "claim-owner", kubeletRestartCheck}
}

// accepted are the checks that were decided; who wants the policy restored has
// decided that one.
func (o Options) accepted() []string {
	if o.RestoreReclaimPolicy {
		return append([]string{"reclaim-policy"}, o.Accept...)
	}
	return o.Accept
}

// modeFor is how a volume is migrated; why says why it is not.
func modeFor(v *PlannedVolume, most journal.Mode) (mode journal.Mode, why string) {
	switch {
	case v.Method == No, v.Method == Unknown:
		return "", strings.Join(v.Why, "; ")
	case v.Method == Live:
		return journal.Live, ""
	case v.Method == PodRestart && most == journal.Rolling:
		return journal.Rolling, ""
	case most == journal.Offline:
		return journal.Offline, ""
	case v.Method == PodRestart:
		return "", "only after a pod restart (--rolling): " + strings.Join(v.Why, "; ")
	}
	return "", "only offline (--offline): " + strings.Join(v.Why, "; ")
}

// graceTooLong says that a wait for the end of a pod would time out, with its claim Lost.
func graceTooLong(v *PlannedVolume, timeout time.Duration) string {
	for _, p := range v.Pods {
		if grace := time.Duration(p.GraceSeconds) * time.Second; grace >= timeout {
			return fmt.Sprintf("pod %s may take %s to end (terminationGracePeriodSeconds), and --timeout is %s: give a longer one", p.Name, grace, timeout)
		}
	}
	return ""
}

// Apply migrates. The error is one of the whole; what came of each volume is in
// the results, in the order of the tasks.
func (r *Runner) Apply(ctx context.Context, tasks []Task) ([]Result, error) {
	jobs := make([]job, 0, len(tasks))
	for _, t := range tasks {
		rec, err := r.newRecord(t)
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, newJob(rec, r.begin))
	}
	return r.runJobs(ctx, jobs)
}

// newRecord returns the record of a volume at the beginning of its migration.
func (r *Runner) newRecord(t Task) (*journal.Record, error) {
	v := t.Volume
	flex, err := encode(v.Original.object)
	if err != nil {
		return nil, fmt.Errorf("PersistentVolume %s: %w", v.Name, err)
	}
	replacement, err := v.Replacement.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("PersistentVolume %s: %w", v.Name, err)
	}
	return &journal.Record{
		Volume: v.Name, Claim: v.Claim, ClaimUID: v.Original.ClaimUID,
		FlexDriver: v.FlexDriver, CSIDriver: v.CSIDriver, VolumeHandle: v.Handle, Attaches: v.attaches, ByVendor: v.byVendor,
		Mode: t.Mode, Direction: journal.ToCSI, Stage: journal.Planned,
		Flex: flex, CSI: replacement, To: replacement, FromUID: v.Original.UID,
		Pods: podsOf(v), Accept: r.Options.accepted(), RestoreReclaimPolicy: r.Options.RestoreReclaimPolicy,
	}, nil
}

// begin begins the migration of a volume, unless one is under way.
func (r *Runner) begin(ctx context.Context, rec *journal.Record) (*migration, error) {
	before, err := r.Journal.Load(ctx, rec.Volume)
	if err != nil {
		return nil, err
	}
	if before != nil && before.Unfinished() {
		return nil, fmt.Errorf("a migration of PersistentVolume %s to %s has come to %s and is not finished: resume it or roll it back", rec.Volume, volumeType(before.Direction), before.Stage)
	}
	if before != nil && before.Direction == journal.ToCSI && before.FromUID == rec.FromUID {
		return nil, nil // by another client, since it was planned
	}
	if err := checkRecord(rec); err != nil { // or else no command could go on with it
		return nil, err
	}
	if before != nil {
		rec.ResourceVersion = before.ResourceVersion
	}
	return newMigration(r, rec), nil
}

// Resumable are the records of migrations and rollbacks that are not finished:
// of these volumes, or, without names, of all. A [journal.UnreadError] is about single ones.
func (r *Runner) Resumable(ctx context.Context, names []string) ([]*journal.Record, error) {
	all, err := r.loadRecords(ctx, names)
	for _, name := range names {
		if !slices.ContainsFunc(all, func(rec *journal.Record) bool { return rec.Volume == name }) && err == nil {
			return nil, fmt.Errorf("find the migration of PersistentVolume %s: the journal has none; flex2csi migrate status shows all", name)
		}
	}
	return slices.DeleteFunc(all, func(rec *journal.Record) bool { return !rec.Unfinished() }), err
}

// VolumeNames returns the names of PersistentVolumes, for names of them and of their claims,
// namespace/name.
func (r *Runner) VolumeNames(ctx context.Context, names []string) ([]string, error) {
	volumes := slices.Clone(names)
	for i, name := range names {
		namespace, claim, is := strings.Cut(name, "/")
		if !is {
			continue
		}
		o, err := objects.Claims().Get(ctx, r.Client, namespace, claim)
		if err != nil {
			return nil, err
		}
		if o == nil || o.Spec.VolumeName == "" {
			return nil, fmt.Errorf("find the volume of claim %s: there is no such claim with a volume; flex2csi migrate status shows the names of volumes", name)
		}
		volumes[i] = o.Spec.VolumeName
	}
	return volumes, nil
}

// loadRecords returns the records of these volumes, or all.
func (r *Runner) loadRecords(ctx context.Context, names []string) (all []*journal.Record, err error) {
	if len(names) == 0 {
		return r.Journal.List(ctx)
	}
	var unread error
	for _, name := range names {
		rec, err := r.Journal.Load(ctx, name)
		broken, err := journal.Unread(err)
		if err != nil {
			return nil, err
		}
		unread = errors.Join(unread, broken)
		if rec != nil {
			all = append(all, rec)
		}
	}
	return all, unread
}

// Resume goes on in the direction of each record.
func (r *Runner) Resume(ctx context.Context, records []*journal.Record) ([]Result, error) {
	jobs := make([]job, 0, len(records))
	for _, rec := range records {
		jobs = append(jobs, newJob(rec, r.resume))
	}
	return r.runJobs(ctx, jobs)
}

// checkCurrent wants a record to be what was read before the Lease was taken, and before a
// person has said yes to it, and to be one that may be gone on with.
func (r *Runner) checkCurrent(ctx context.Context, rec *journal.Record) error {
	now, err := r.Journal.Load(ctx, rec.Volume)
	switch {
	case err != nil:
		return err
	case now == nil || (rec.Sequence == 0 && !now.Unfinished()): // it is made of the annotation
	case now.Sequence != rec.Sequence || !now.Begun.Equal(rec.Begun):
		return fmt.Errorf("another process has continued with PersistentVolume %s meanwhile: check its status, and try again", rec.Volume)
	}
	if now != nil {
		rec.ResourceVersion = now.ResourceVersion
	}
	return checkRecord(rec)
}

// restarts is what only one volume at a time may restart.
func restarts(rec *journal.Record) string {
	if rec.Mode != journal.Rolling || len(rec.Pods) == 0 {
		return ""
	}
	namespace, _, _ := strings.Cut(rec.Claim, "/")
	return namespace + "/" + rec.Pods[0].Owner
}

// decide adds what is decided now to what was before.
func (r *Runner) decide(rec *journal.Record) {
	for _, check := range r.Options.accepted() {
		if !slices.Contains(rec.Accept, check) {
			rec.Accept = append(rec.Accept, check)
		}
	}
}

// resume finds out how far a volume really is.
func (r *Runner) resume(ctx context.Context, rec *journal.Record) (*migration, error) {
	if err := r.checkCurrent(ctx, rec); err != nil {
		return nil, err
	}
	m := newMigration(r, rec)
	r.decide(rec)
	rec.RestoreReclaimPolicy = rec.RestoreReclaimPolicy || r.Options.RestoreReclaimPolicy
	if rec.Stage == journal.Finished {
		return nil, nil
	}
	if at := presenceAt(rec); at != oldVolume && at != noVolume { // the swap is over
		return m, nil
	}
	return m, m.insist(ctx, func(ctx context.Context) error {
		state, pv, err := m.observe(ctx)
		if err != nil {
			return err
		}
		switch {
		case state == oldPresent:
			rec.Stage = journal.BackedUp // all is looked at once more
			return nil
		case state == reverted: // another client has put it back, and a person wants to go on
			rec.FromUID, rec.PutBack, rec.Stage = string(pv.UID), "", journal.BackedUp
			return m.waitForClaim(ctx)
		case state == unmanaged:
			return m.notOurs(state, pv)
		case !m.inWindow() && (state == oldDeleting || state == absent):
			return terminal("PersistentVolume %s was deleted by another client; roll back to have it created again", rec.Volume)
		case state == absent:
			err = m.checkCluster(ctx)
		}
		if err == nil && (state == absent || state == oldDeleting) && rec.Direction == journal.ToCSI {
			err = m.checkRendered(ctx)
		}
		if err != nil {
			return err
		}
		if !m.inWindow() {
			rec.Stage = journal.Deleting
		}
		return nil
	})
}
