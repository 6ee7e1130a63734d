package bridge_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/flex2csi/flex2csi/internal/bridge"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// fakeCluster attaches as a cluster does: an attachment that was requested goes on when
// no caller waits for it any more. It is for faults that a real cluster does not have on
// demand; test/cluster has a real one.
type fakeCluster struct {
	driver *fakeDriver
	notes  func(call string) // before each call; may be nil

	mu      sync.Mutex
	objects map[string]*object
	calls   []string
	fail    map[string][]error // by method, one for each call
	after   map[string]bool    // whether the request arrives before it fails
	slow    map[string]bool    // by method: what is asked for does not come about
	context map[string]string  // publish context of new attachments
	asCSI   bool               // csivol.Attached.AttachedAsCSI
	asked   []csivol.Attachment
	wrong   []string // what must never be asked
	// replaced counts objects that no record had made.
	replaced int
}

// An object is a VolumeAttachment.
type object struct {
	a                    csivol.Attachment
	ours, done, deleting bool
}

func newFakeCluster(d *fakeDriver) *fakeCluster {
	return &fakeCluster{
		driver: d, objects: map[string]*object{}, fail: map[string][]error{}, after: map[string]bool{}, slow: map[string]bool{},
		context: map[string]string{"device": "d"},
	}
}

// begin notes a call and returns what it fails with, and whether it arrives.
func (c *fakeCluster) begin(method string, a *csivol.Attachment) (injected error, arrives bool) {
	if c.notes != nil {
		c.notes(method)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, method)
	c.asked = append(c.asked, *a)
	if queue := c.fail[method]; len(queue) > 0 {
		injected, c.fail[method] = queue[0], queue[1:]
	}
	return injected, injected == nil || c.after[method]
}

func (c *fakeCluster) Attach(ctx context.Context, a *csivol.Attachment) (csivol.Attached, error) {
	injected, arrives := c.begin("Attach", a)
	name := objects.AttachmentName(a.Handle, a.Driver, a.Node)
	if arrives {
		c.request(name, a, true)
	}
	if injected != nil {
		return csivol.Attached{}, injected
	}
	return c.wait(ctx, name)
}

func (c *fakeCluster) Await(ctx context.Context, a *csivol.Attachment) (csivol.Attached, error) {
	if injected, _ := c.begin("Await", a); injected != nil {
		return csivol.Attached{}, injected
	}
	return c.wait(ctx, objects.AttachmentName(a.Handle, a.Driver, a.Node))
}

// request makes an object unless there is one.
func (c *fakeCluster) request(name string, a *csivol.Attachment, ours bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.objects[name]
	if o != nil && o.ours && !o.deleting && o.a.Request != a.Request && !a.Keep {
		c.replaced++
		o = nil
	}
	if o == nil {
		c.objects[name] = &object{a: *a, ours: ours}
	} else if o.deleting {
		c.wrong = append(c.wrong, "attached while the one before is being deleted")
	}
	c.settle()
}

// settle does what the cluster does by itself, if it is not slow.
func (c *fakeCluster) settle() {
	for name, o := range c.objects {
		switch {
		case o.deleting && !c.slow["Detach"]:
			c.driver.mu.Lock()
			if c.driver.staged[o.a.Handle] != "" {
				c.wrong = append(c.wrong, "detached while staged")
			}
			delete(c.driver.attached, o.a.Handle)
			c.driver.mu.Unlock()
			delete(c.objects, name)
		case !o.deleting && !o.done && !c.slow["Attach"]:
			o.done = true
			c.driver.mu.Lock()
			c.driver.attached[o.a.Handle] = o.a.Node
			c.driver.mu.Unlock()
		}
	}
}

func (c *fakeCluster) wait(ctx context.Context, name string) (csivol.Attached, error) {
	c.mu.Lock()
	o := c.objects[name]
	if o != nil && o.done && !o.deleting {
		defer c.mu.Unlock()
		return csivol.Attached{Object: name, PublishContext: maps.Clone(c.context), Ours: o.ours, AttachedAsCSI: c.asCSI}, nil
	}
	c.mu.Unlock()
	<-ctx.Done()
	return csivol.Attached{}, flex.Errorf(flex.CodeDeadlineExceeded, "still attaching: the driver says no disk like that")
}

func (c *fakeCluster) Detach(ctx context.Context, a *csivol.Attachment) error {
	injected, arrives := c.begin("Detach", a)
	name := cmp.Or(a.Object, objects.AttachmentName(a.Handle, a.Driver, a.Node))
	c.mu.Lock()
	o := c.objects[name]
	if arrives && o != nil && o.ours {
		o.deleting = true
		c.settle()
	}
	left := c.objects[name]
	c.mu.Unlock()
	if injected != nil || left == nil || !left.ours {
		return injected
	}
	<-ctx.Done()
	return flex.Errorf(flex.CodeDeadlineExceeded, "still detaching")
}

func (c *fakeCluster) Lost(a *csivol.Attachment) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.objects[cmp.Or(a.Object, objects.AttachmentName(a.Handle, a.Driver, a.Node))]
	return o == nil || !o.done || o.deleting, nil
}

// list is what Sweep sees.
func (c *fakeCluster) list(context.Context) (all []*csivol.Attachment, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range c.objects {
		if o.ours {
			a := o.a
			all = append(all, &a)
		}
	}
	return all, nil
}

// lose deletes all attachments, as an operator may.
func (c *fakeCluster) lose() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.objects)
}

// hurry ends slowness, and does what was waiting.
func (c *fakeCluster) hurry() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.slow)
	c.settle()
}

func (c *fakeCluster) set(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

func (c *fakeCluster) called() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := strings.Join(c.calls, " ")
	c.calls = nil
	return s
}

func (c *fakeCluster) left() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprint(slices.Sorted(maps.Keys(c.objects)), c.wrong)
}

var _ bridge.Attacher = (*fakeCluster)(nil)
