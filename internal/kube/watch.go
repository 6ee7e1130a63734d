package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"sync/atomic"
	"time"

	apiwatch "k8s.io/apimachinery/pkg/watch"

	"github.com/flex2csi/flex2csi/internal/clusterview"
)

// watchFor is after how long the API server ends a watch of one object.
const watchFor = 5 * time.Minute

// WatchObject tells what an object is, or was a moment ago, if it is there, and
// then each change of it. The channel is closed when the watch has ended, which is
// no error: whoever waits looks again. Who does not read to the end ends ctx.
func (c *Cluster) WatchObject(ctx context.Context, r clusterview.Resource, namespace, name string) (<-chan clusterview.Event, error) {
	ctx, cancel := context.WithCancel(ctx)
	var late atomic.Bool
	opening := time.AfterFunc(requestTimeout, func() { late.Store(true); cancel() })
	stream, err := c.core.RESTClient().Get().AbsPath(r.Path(namespace)).
		Param("watch", "true").Param("fieldSelector", "metadata.name="+name).
		Param("timeoutSeconds", strconv.Itoa(int(watchFor.Seconds()))).
		SetHeader("Accept", jsonType).MaxRetries(0).Stream(ctx)
	opening.Stop()
	if late.Load() {
		err = context.DeadlineExceeded
	}
	if err != nil {
		cancel()
		if stream != nil {
			_ = stream.Close()
		}
		return nil, answered(err, fmt.Sprintf("watch %s %s", r.Name, nameIn(namespace, name)))
	}
	events := make(chan clusterview.Event)
	go func() {
		defer close(events)
		defer cancel()
		defer stream.Close()
		tellEvents(ctx, stream, events)
	}()
	return events, nil
}

// tellEvents passes on what a watch says until it ends.
func tellEvents(ctx context.Context, stream io.Reader, events chan<- clusterview.Event) {
	d := json.NewDecoder(stream)
	for {
		var e struct {
			Type   apiwatch.EventType `json:"type"`
			Object json.RawMessage    `json:"object"`
		}
		if d.Decode(&e) != nil {
			return
		}
		var told clusterview.Event
		switch e.Type {
		case apiwatch.Added, apiwatch.Modified:
			told.Object = e.Object
		case apiwatch.Deleted:
		case apiwatch.Bookmark:
			continue
		default: // an error: the version is too old, and the like
			return
		}
		select {
		case events <- told:
		case <-ctx.Done():
			return
		}
	}
}
