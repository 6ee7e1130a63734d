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
	"github.com/flex2csi/flex2csi/internal/migrate/lock"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// This file is the dangerous part, and all of it: a PersistentVolume is deleted,
// and another one of the same name is created. The same code makes a CSI volume
// of a FlexVolume and takes that back. Why nothing that is stored can be lost:
//
//   - Nothing deletes what is stored. The volume that goes has policy Retain, which
//     was read back, and so has the one that comes, until its claim is bound to it.
//   - The one that comes is in the journal before the other one goes: on disk and
//     in the cluster, both read back or written for good (Save). The API server
//     has accepted it as a dry run.
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

// sight is what the cluster shows of a swap.
type sight int

const (
	before   sight = iota // the volume that is to go is there
	deleting              // it is being deleted; its finalizers keep it
	gone                  // there is none
	created               // the one that is to come is there
	other                 // the other one of the two is there, and not the one that was to go
	foreign               // another client has made one
)

// look observes the object. It asks for the object as it is stored now, not
// as some cache has it.
func (o *one) look(ctx context.Context) (sight, *volume, error) {
	pv, err := o.volume(ctx)
	switch {
	case err != nil:
		return foreign, nil, err
	case pv == nil:
		return gone, nil, nil
	case string(pv.UID) == o.rec.FromUID && pv.deleting():
		return deleting, pv, nil
	case string(pv.UID) == o.rec.FromUID:
		return before, pv, nil
	case pv.deleting():
		return foreign, pv, nil
	case o.matches(pv, o.rec.To):
		return created, pv, nil
	case o.matches(pv, o.otherOne()):
		return other, pv, nil
	}
	return foreign, pv, nil
}

// replace makes the swap, beginning anywhere in it.
func (o *one) replace(ctx context.Context) error {
	for {
		is, pv, err := o.look(ctx)
		if objects.OutcomeOf(err) == objects.Refused && o.inWindow() { // as with a token that has just ended
			err = retryable{err}
		}
		if err != nil {
			return err
		}
		switch is {
		case before:
			err = o.deleteFrom(ctx, pv)
		case deleting:
			err = o.release(ctx, pv)
		case gone:
			err = o.fill(ctx)
		case created:
			o.rec.CreatedUID = string(pv.UID)
			return o.reach(ctx, journal.Created)
		default:
			err = o.notOurs(is, pv)
		}
		if err != nil || o.rec.Stage == journal.BackedUp { // the latter: to be accepted again
			return err
		}
	}
}

// deleteFrom deletes the volume that is to go, if it is the very one that this
// process has accepted. It stays as long as it has finalizers.
func (o *one) deleteFrom(ctx context.Context, pv *volume) error {
	version := pv.ResourceVersion
	if version != o.accepted {
		return o.acceptAgain()
	}
	o.rec.FromResourceVersion = version
	if err := o.reach(ctx, journal.Deleting); err != nil { // to and from are written down here
		return err
	}
	if err := o.held(); err != nil {
		return err
	}
	return o.c.Delete(ctx, objects.PersistentVolumes().Resource, "", o.rec.Volume, metav1.Preconditions{UID: new(types.UID(o.rec.FromUID)), ResourceVersion: &version})
}

// release takes the finalizers of a volume that is being deleted, which is when
// it goes. Taken before, kubernetes.io/pv-protection would be put back at once
// (pkg/controller/volume/pvprotection/pv_protection_controller.go, Kubernetes
// v1.37.1).
func (o *one) release(ctx context.Context, pv *volume) error {
	finalizers, foreign := sortFinalizers(pv)
	if len(foreign) > 0 {
		return terminal("PersistentVolume %s is being deleted and has got the finalizer %s meanwhile: it stays until its owner removes that; then resume", o.rec.Volume, foreign[0])
	}
	if len(finalizers) == 0 { // it is on its way
		return sleep(ctx, 100*time.Millisecond)
	}
	patch, err := json.Marshal([]operation{
		{Op: "test", Path: "/metadata/uid", Value: o.rec.FromUID},
		{Op: "test", Path: "/metadata/resourceVersion", Value: pv.ResourceVersion},
		{Op: "test", Path: "/metadata/finalizers", Value: finalizers},
		{Op: "remove", Path: "/metadata/finalizers"},
	})
	if err != nil {
		return err
	}
	if err := o.held(); err != nil {
		return err
	}
	if _, err := o.c.Patch(ctx, objects.PersistentVolumes().Resource, "", o.rec.Volume, types.JSONPatchType, patch); err != nil {
		return err
	}
	o.passed(journal.Deleted)
	return nil
}

// fill creates the volume that is to come. If that cannot be, the other one of
// the two is created: a claim is not left without a volume.
func (o *one) fill(ctx context.Context) error {
	if o.rec.Stage != journal.Stopped {
		o.rec.Stage = journal.Deleted // which is written down with the next stage
	}
	if o.rec.PutBack == "" {
		if err := o.makeWay(ctx); err != nil {
			return o.turnBack(ctx, err)
		}
	}
	// The Lease is not asked for: of two who create it one succeeds, and the other
	// looks what that has made.
	to, err := parse(o.rec.To)
	if err != nil {
		return err
	}
	stored, err := o.c.Create(ctx, objects.PersistentVolumes().Resource, &to.Unstructured)
	switch objects.OutcomeOf(err) {
	case objects.Done:
		return o.asAsked(to.Object, stored)
	case objects.Exists: // the next observation says which
		if o.existed++; o.existed > 1 {
			o.tell(Troubled, o.rec.Stage, fmt.Sprintf("%v, and it is not there; it is tried again", err))
		}
		return sleep(ctx, min(time.Duration(o.existed)*100*time.Millisecond, 5*time.Second))
	case objects.Refused:
		return o.turnBack(ctx, err)
	}
	return err
}

// asAsked compares what was stored with what was to be.
func (o *one) asAsked(want map[string]any, stored *unstructured.Unstructured) error {
	o.rec.CreatedUID = string(stored.GetUID())
	if changed := changedBy(want, stored.Object); len(changed) > 0 {
		return terminal("PersistentVolume %s was stored otherwise than it was to be: %s; find out by which webhook, then resume or roll back", o.rec.Volume, strings.Join(changed, "; "))
	}
	return nil
}

// turnBack has the other one of the two created, once. If that is refused as
// well, it is tried again and again: no other way is as good.
func (o *one) turnBack(ctx context.Context, why error) error {
	switch {
	case worthAnotherTry(why) || ctx.Err() != nil || errors.Is(why, lock.ErrLost), errors.Is(why, journal.ErrConflict): // in the last two another operator goes on
		return why
	case o.rec.PutBack != "":
		return retryable{why}
	}
	o.turn()
	o.rec.PutBack = why.Error()
	o.tell(Troubled, o.rec.Stage, fmt.Sprintf("%v; the volume that there was is put back", why))
	if err := o.save(ctx); err != nil { // that the claim has a volume is worth more
		o.tell(Troubled, o.rec.Stage, err.Error())
	}
	return nil
}

// turn has the record go in the other direction.
func (o *one) turn() {
	o.rec.To = o.otherOne()
	o.rec.CreatedUID = ""
	if o.rec.Direction == journal.ToCSI {
		o.rec.Direction = journal.ToFlexVolume
	} else {
		o.rec.Direction = journal.ToCSI
	}
}

// otherOne is the volume that is not to come.
func (o *one) otherOne() json.RawMessage {
	if o.rec.Direction == journal.ToFlexVolume {
		return o.rec.CSI
	}
	return restored(o.rec)
}

func (o *one) notOurs(is sight, pv *volume) error {
	what := "another one, which another client has created (uid " + string(pv.UID) + ")"
	switch {
	case pv.deleting():
		what = "one that is being deleted"
	case is == other:
		what = "what it was before: another client has put that back, as GitOps tools do"
	}
	return terminal("PersistentVolume %s is %s; nothing is done to it. See who does that, then resume or roll back", o.rec.Volume, what)
}
