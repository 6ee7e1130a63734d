package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// Reasons of Events, in docs/reference/events.md.
const (
	reasonStarted  = "VolumeMigrationStarted"
	reasonMigrated = "VolumeMigrated"
	reasonFailed   = "VolumeMigrationFailed"
)

// eventPatience bounds the requests for Events: no volume waits for them.
const eventPatience = 5 * time.Second

// claimEvents makes an Event on the claim of a volume when its migration begins and ends, next
// to the control plane's, which says that data is lost.
type claimEvents struct {
	queue chan *corev1.Event
	done  chan struct{}
}

// newClaimEvents writes them in the background. problem is told once that it cannot.
func newClaimEvents(client *objects.Client, problem func(format string, args ...any)) *claimEvents {
	c := &claimEvents{queue: make(chan *corev1.Event, 1000), done: make(chan struct{})}
	go func() {
		defer close(c.done)
		said := false
		for e := range c.queue {
			if err := createEvent(client, e); err != nil && !said {
				said = true
				problem("no Event on claim %s: %v; the migration goes on without", e.InvolvedObject.Namespace+"/"+e.InvolvedObject.Name, err)
			}
		}
	}()
	return c
}

func createEvent(client *objects.Client, e *corev1.Event) error {
	object, err := objects.ToUnstructured(e)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), eventPatience)
	defer cancel()
	_, err = client.Create(ctx, corev1.SchemeGroupVersion.WithResource("events"), object)
	return err
}

func (c *claimEvents) tell(e migrate.Event) {
	event := eventOf(e)
	if event == nil {
		return
	}
	select {
	case c.queue <- event:
	default: // the API server does not answer, and the log has it
	}
}

// close waits for the last ones, but not for long.
func (c *claimEvents) close() {
	close(c.queue)
	select {
	case <-c.done:
	case <-time.After(eventPatience):
	}
}

// eventOf returns the Event for what has happened to a volume; nil: none.
func eventOf(e migrate.Event) *corev1.Event {
	namespace, name, ok := strings.Cut(e.Claim, "/")
	reason, text := eventText(e)
	if !ok || reason == "" {
		return nil
	}
	kind := corev1.EventTypeNormal
	if reason == reasonFailed {
		kind = corev1.EventTypeWarning
	}
	at := metav1.NewTime(e.At)
	return &corev1.Event{
		TypeMeta:       metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, Name: name + "." + strings.ToLower(rand.Text()[:16])},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: namespace, Name: name, UID: types.UID(e.ClaimUID)},
		Type:           kind, Reason: reason, Message: text,
		Source:         corev1.EventSource{Component: migrateAgent},
		FirstTimestamp: at, LastTimestamp: at, Count: 1,
	}
}

func eventText(e migrate.Event) (reason, text string) {
	into := "a CSI volume"
	if e.Direction == journal.ToFlexVolume {
		into = "the FlexVolume that it was"
	}
	switch {
	case e.What == migrate.Begun:
		return reasonStarted, fmt.Sprintf("PersistentVolume %s becomes %s. The claim is Lost for a moment, and no data is lost", e.Volume, into)
	case e.What != migrate.Over || e.Result == nil:
		return "", ""
	case e.Result.Outcome == migrate.Done:
		return reasonMigrated, fmt.Sprintf("PersistentVolume %s is %s", e.Volume, into)
	case e.Result.Outcome == migrate.PutBack, e.Result.Outcome == migrate.Left:
		return reasonFailed, fmt.Sprintf("PersistentVolume %s stays what it was: %s", e.Volume, e.Result.Why)
	}
	return reasonFailed, fmt.Sprintf("PersistentVolume %s has come to %s: %s; flex2csi migrate status says what to do", e.Volume, e.Stage, e.Result.Why)
}
