package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/flex2csi/flex2csi/internal/migrate/journal"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// This file is the dangerous part, and all of it: a PersistentVolume is deleted,
// and another one of the same name is created. The same code makes a CSI volume
// of a FlexVolume and takes that back. Why nothing that is stored can be lost:
//
//   - Nothing deletes what is stored. The volume that goes has policy Retain, which
//     was read back, and so has the one that comes, until its claim is bound to it.
//   - The one that comes is in the journal before the other one goes: in the cluster,
//     where the first record was compared with what was written, and a copy on the disk
//     (Save). The API server has accepted it as a dry run.
//   - What goes is deleted only as the very object that was looked at: DELETE has
//     its uid and resourceVersion, and so has the patch that takes its finalizers.
//   - Each request follows an observation of the cluster, and is made again only
//     after another look. So it does not matter after which of them the process
//     is killed, or which answer is lost: who goes on looks, too.
//   - What was not foreseen is not touched: the swap stops. Once the old
//     volume is gone, the only way out is to create one of the two.
//
// The claim is not touched. It is Lost from when the volume is gone until the
// next one of the name is there with the claim's UID in its claimRef.

// swapState is what the cluster shows of a swap.
type swapState int

const (
	oldPresent  swapState = iota // the volume that is to go is there
	oldDeleting                  // it is being deleted; its finalizers keep it
	absent                       // there is none
	newPresent                   // the one that is to come is there
	reverted                     // the other one of the two is there, and not the one that was to go
	unmanaged                    // another client has made one
)

// observe reads the object. It asks for the object as it is stored now, not
// as some cache has it.
func (m *migration) observe(ctx context.Context) (swapState, *volume, error) {
	pv, err := m.getVolume(ctx)
	switch {
	case err != nil:
		return unmanaged, nil, err
	case pv == nil:
		return absent, nil, nil
	case string(pv.UID) == m.rec.FromUID && pv.deleting():
		return oldDeleting, pv, nil
	case string(pv.UID) == m.rec.FromUID:
		return oldPresent, pv, nil
	case pv.deleting():
		return unmanaged, pv, nil
	case m.matches(pv, m.rec.To):
		return newPresent, pv, nil
	case m.matches(pv, m.otherVolume()):
		return reverted, pv, nil
	}
	return unmanaged, pv, nil
}

// look observes what the swap has come to, and is an error where that was not foreseen.
func (m *migration) look(ctx context.Context) (swapState, *volume, error) {
	state, pv, err := m.observe(ctx)
	switch {
	case objects.OutcomeOf(err) == objects.Refused && m.inWindow(): // as with a token that has just ended
		return state, nil, retryable{err}
	case err != nil:
		return state, nil, err
	}
	m.opened = m.opened || state != oldPresent
	if state == reverted || state == unmanaged {
		return state, nil, m.notOurs(state, pv)
	}
	return state, pv, nil
}

// lookBetween returns the volume that is to come; nil if there is none. The other one has to go
// first: errMoved.
func (m *migration) lookBetween(ctx context.Context) (*volume, error) {
	state, pv, err := m.look(ctx)
	if err == nil && (state == oldPresent || state == oldDeleting) {
		m.rec.Stage, err = journal.Deleting, errMoved
	}
	return pv, err
}

// deleteOld deletes the volume that is to go, if it is the very one that this
// process has accepted. It stays as long as it has finalizers. The stage is written down before
// the request: what goes and what comes has to be in the journal then.
func (m *migration) deleteOld(ctx context.Context) error {
	state, pv, err := m.look(ctx)
	if err == nil && state == absent { // by another client: nothing holds up what the claim waits for
		m.rec.Stage = journal.Deleting
	}
	if err != nil || state != oldPresent {
		return err
	}
	version := pv.ResourceVersion
	if version != m.acceptedVersion {
		return m.returnToBackedUp()
	}
	m.rec.FromResourceVersion = version
	if err := m.writeStage(ctx, journal.Deleting); err != nil {
		return err
	}
	if err := m.checkLease(); err != nil {
		return err
	}
	return m.c.Patient().Delete(objects.Short(ctx), objects.PersistentVolumes().Resource, "", m.rec.Volume, metav1.Preconditions{UID: new(types.UID(m.rec.FromUID)), ResourceVersion: &version})
}

// removeOld has the volume go that is being deleted. The stage is written down with the next one,
// as its claim is Lost from here.
func (m *migration) removeOld(ctx context.Context) error {
	for {
		state, pv, err := m.look(ctx)
		switch {
		case err != nil:
			return err
		case state == oldPresent: // the request to delete it has had no effect
			m.rec.Stage = journal.Accepted
			return errMoved
		case state != oldDeleting: // since when is not known
			m.rec.Stage = journal.Deleted
			return nil
		}
		if gone, err := m.removeFinalizers(ctx, pv); gone || err != nil {
			return err
		}
	}
}

// removeFinalizers takes the finalizers of a volume that is being deleted, which is when
// it goes. Taken before, kubernetes.io/pv-protection would be put back at once
// (pkg/controller/volume/pvprotection/pv_protection_controller.go, Kubernetes
// v1.37.1).
func (m *migration) removeFinalizers(ctx context.Context, pv *volume) (gone bool, err error) {
	finalizers, others := sortFinalizers(pv)
	if len(others) > 0 {
		return false, terminal("PersistentVolume %s is being deleted and has got the finalizer %s meanwhile: it stays until its owner removes that; then resume", m.rec.Volume, others[0])
	}
	if len(finalizers) == 0 { // it is on its way
		return false, sleep(ctx, 100*time.Millisecond)
	}
	if pv.policy() != policyRetain { // another client has changed that since
		return false, errors.Join(m.patchRetain(ctx), sleep(ctx, 100*time.Millisecond))
	}
	if err := m.patchVolume(ctx, m.c.Patient(), types.JSONPatchType, takeFinalizers(m.rec.FromUID, pv.ResourceVersion, finalizers)); err != nil {
		return false, err
	}
	m.setStage(journal.Deleted)
	m.tellReached(journal.Deleted)
	return true, nil
}

// takeFinalizers returns the patch that takes these finalizers of one object; with a
// resourceVersion, as it was then.
func takeFinalizers(uid, resourceVersion string, finalizers []string) []operation {
	operations := []operation{
		{Op: "test", Path: "/metadata/uid", Value: uid},
		{Op: "test", Path: "/metadata/finalizers", Value: finalizers},
		{Op: "remove", Path: "/metadata/finalizers"},
	}
	if resourceVersion != "" {
		operations = append([]operation{{Op: "test", Path: "/metadata/resourceVersion", Value: resourceVersion}}, operations...)
	}
	return operations
}

// createNew creates the volume that is to come. If that cannot be, the other one of
// the two is created: a claim is not left without a volume.
func (m *migration) createNew(ctx context.Context) error {
	pv, err := m.lookBetween(ctx)
	if err != nil {
		return err
	}
	if pv != nil {
		m.rec.CreatedUID = string(pv.UID)
		return nil
	}
	if m.rec.PutBack == "" {
		if err := m.mayCreate(ctx); err != nil {
			return m.turnBack(ctx, err)
		}
	}
	// The Lease is not asked for: of two who create it one succeeds, and the other
	// looks what that has made.
	to, err := parse(m.rec.To)
	if err != nil {
		return err
	}
	stored, err := m.c.Patient().Create(ctx, objects.PersistentVolumes().Resource, &to.Unstructured)
	switch objects.OutcomeOf(err) {
	case objects.Done:
		return m.checkStored(to.Object, stored)
	case objects.Exists: // the next look says which
		return retryable{err}
	case objects.Refused:
		return m.turnBack(ctx, err)
	}
	return err
}

// checkStored compares what was stored with what was to be.
func (m *migration) checkStored(want map[string]any, stored *unstructured.Unstructured) error {
	m.rec.CreatedUID = string(stored.GetUID())
	if changed := changedBy(want, stored.Object); len(changed) > 0 {
		return terminal("PersistentVolume %s was stored otherwise than it was to be: %s; find out by which webhook, then resume or roll back", m.rec.Volume, strings.Join(changed, "; "))
	}
	return nil
}

// turnBack has the other one of the two created, once: errMoved. If that is refused as
// well, it is tried again and again: no other way is as good.
func (m *migration) turnBack(ctx context.Context, why error) error {
	switch {
	case worthAnotherTry(why) || ctx.Err() != nil || errors.Is(why, journal.ErrLost), errors.Is(why, journal.ErrConflict): // in the last two another operator goes on
		return why
	case m.rec.PutBack != "":
		return retryable{why}
	}
	m.reverse()
	m.rec.PutBack = why.Error()
	m.tell(Troubled, m.rec.Stage, fmt.Sprintf("%v; the volume that there was is put back", why))
	if err := m.save(ctx); err != nil { // that the claim has a volume is worth more
		m.tell(Troubled, m.rec.Stage, err.Error())
	}
	return errMoved
}

// reverse has the record go in the other direction.
func (m *migration) reverse() {
	m.rec.To = m.otherVolume()
	m.rec.CreatedUID = ""
	if m.rec.Direction == journal.ToCSI {
		m.rec.Direction = journal.ToFlexVolume
	} else {
		m.rec.Direction = journal.ToCSI
	}
}

// otherVolume is the volume that is not to come.
func (m *migration) otherVolume() json.RawMessage {
	if m.rec.Direction == journal.ToFlexVolume {
		return m.rec.CSI
	}
	return restored(m.rec)
}

func (m *migration) notOurs(state swapState, pv *volume) error {
	what := "another one, which another client has created (uid " + string(pv.UID) + ")"
	switch {
	case pv.deleting():
		what = "one that is being deleted"
	case state == reverted:
		what = "what it was before: another client has put that back, as GitOps tools do"
	}
	return terminal("PersistentVolume %s is %s; nothing is done to it. See who does that, then resume or roll back", m.rec.Volume, what)
}
