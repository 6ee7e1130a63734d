package kube

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// apiServer is client-go's fake with what it lacks of an API server: UIDs and resource
// versions, preconditions, finalizers, selectors of watches. It attaches at once. Faults
// that a real one does not have on demand are injected; test/cluster has a real one.
type apiServer struct {
	*fake.Clientset
	t *testing.T

	mu       sync.Mutex
	version  int
	requests []string // of VolumeAttachments: "list", "create", …
	// fails has the error of the next request, by verb and resource.
	fails map[string]error
	// sticky lets them fail until it is false.
	sticky bool
	// before is called before a request takes effect, by verb and resource. It must not
	// wait: the fake has a lock meanwhile.
	before map[string]func()
	// log is what the cluster logs; read it after synctest.Wait.
	log bytes.Buffer
	// watches are those of VolumeAttachments that were started.
	watches []*selection
	// silent: watches say nothing, not even with a bookmark.
	silent bool
}

var attachmentKind = storagev1.SchemeGroupVersion.WithResource("volumeattachments")

// inCluster runs a test on a cluster with these objects; its time does not cost any.
func inCluster(t *testing.T, objects []runtime.Object, test func(t *testing.T, s *apiServer, c *Cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &apiServer{Clientset: fake.NewClientset(), t: t, fails: map[string]error{}, before: map[string]func(){}}
		for _, o := range objects {
			if a, ok := o.(*storagev1.VolumeAttachment); ok {
				s.identify(a)
			}
			if err := s.Tracker().Add(o); err != nil {
				t.Fatal(err)
			}
		}
		s.PrependReactor("*", "*", s.react)
		s.PrependWatchReactor("volumeattachments", s.watch)
		c := &Cluster{core: s.CoreV1(), storage: s.StorageV1(), log: slog.New(slog.NewTextHandler(&s.log, nil)), requests: &requests{}}
		var running sync.WaitGroup
		running.Go(func() { c.Run(t.Context()) })
		test(t, s, c)
		t.Cleanup(running.Wait)
	})
}

// daemon is that of a node, once it watches: the fake replays nothing to a watch.
func daemon(c *Cluster, node string) *Attachments {
	a := c.Attachments(node, objects.AttachedByNode)
	synctest.Wait()
	return a
}

func (s *apiServer) identify(o *storagev1.VolumeAttachment) {
	s.version++
	if o.UID == "" {
		o.UID, o.CreationTimestamp = types.UID(fmt.Sprintf("uid-%d", s.version)), metav1.Now()
	}
	o.ResourceVersion = fmt.Sprint(s.version)
}

// react notes a request, and does what the fake does not.
func (s *apiServer) react(a k8stesting.Action) (bool, runtime.Object, error) {
	key := a.GetVerb() + " " + a.GetResource().Resource
	s.mu.Lock()
	ours, before, err := a.GetResource() == attachmentKind, s.before[key], s.fails[key]
	delete(s.before, key)
	if !s.sticky {
		delete(s.fails, key)
	}
	if ours {
		s.requests = append(s.requests, a.GetVerb())
	}
	s.mu.Unlock()
	if before != nil {
		before()
	}
	if err != nil || !ours {
		return err != nil, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch a := a.(type) {
	case k8stesting.CreateActionImpl:
		o := a.GetObject().(*storagev1.VolumeAttachment)
		s.identify(o)
		o.Status.Attached = true
	case k8stesting.DeleteActionImpl:
		return s.remove(a)
	}
	return false, nil, nil
}

func (s *apiServer) remove(a k8stesting.DeleteActionImpl) (bool, runtime.Object, error) {
	o, err := s.Tracker().Get(attachmentKind, "", a.GetName())
	if err != nil {
		return true, nil, err
	}
	now, is := o.(*storagev1.VolumeAttachment), a.DeleteOptions.Preconditions
	switch {
	case is == nil || is.UID == nil:
		s.t.Errorf("%s is deleted whatever it is: %+v", a.GetName(), is)
	case *is.UID != now.UID, is.ResourceVersion != nil && *is.ResourceVersion != now.ResourceVersion:
		return true, nil, apierrors.NewConflict(attachmentKind.GroupResource(), now.Name, fmt.Errorf("the precondition is %v", is))
	case len(now.Finalizers) == 0 && is.ResourceVersion == nil:
		s.t.Errorf("%s is deleted without a finalizer, in any version", a.GetName())
	}
	if len(now.Finalizers) == 0 {
		return false, nil, nil
	}
	now = now.DeepCopy()
	now.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	s.identify(now)
	return true, nil, s.Tracker().Update(attachmentKind, now, "")
}

// watch selects; the fake does so for lists only.
func (s *apiServer) watch(a k8stesting.Action) (bool, watch.Interface, error) {
	w := a.(k8stesting.WatchActionImpl)
	if w.ListOptions.SendInitialEvents != nil {
		return true, nil, apierrors.NewInvalid(storagev1.SchemeGroupVersion.WithKind("x").GroupKind(), "", nil)
	}
	selected, err := labels.Parse(w.ListOptions.LabelSelector)
	if err != nil {
		return true, nil, err
	}
	named, err := fields.ParseSelector(w.ListOptions.FieldSelector)
	if err != nil {
		return true, nil, err
	}
	all, err := s.Tracker().Watch(attachmentKind, "", w.ListOptions)
	if err != nil {
		return true, nil, err
	}
	some := &selection{Interface: all, selected: make(chan watch.Event), ended: make(chan struct{})}
	s.mu.Lock()
	s.watches = append(s.watches, some)
	s.mu.Unlock()
	go some.run(s, func(o *storagev1.VolumeAttachment) bool {
		return selected.Matches(labels.Set(o.Labels)) && named.Matches(fields.Set{"metadata.name": o.Name})
	})
	return true, some, nil
}

// A selection is a watch of some objects. That of apimachinery (watch.Filter) leaks a
// goroutine when it is stopped.
type selection struct {
	watch.Interface
	selected chan watch.Event
	ended    chan struct{}
	once     sync.Once
}

func (w *selection) run(s *apiServer, is func(*storagev1.VolumeAttachment) bool) {
	defer close(w.selected)
	bookmarks := time.NewTicker(time.Minute)
	defer bookmarks.Stop()
	for {
		var e watch.Event
		select {
		case some, ok := <-w.Interface.ResultChan():
			if !ok {
				return
			}
			e = some
		case <-bookmarks.C:
			e = s.bookmark()
		case <-w.ended:
			return
		}
		o, ok := e.Object.(*storagev1.VolumeAttachment)
		if s.isSilent() || (ok && e.Type != watch.Bookmark && !is(o)) {
			continue
		}
		if ok {
			e.Object = o.DeepCopy() // informers trim what they get
		}
		select {
		case w.selected <- e:
		case <-w.ended:
			return
		}
	}
}

func (w *selection) ResultChan() <-chan watch.Event { return w.selected }

func (w *selection) Stop() {
	w.once.Do(func() { close(w.ended) })
	w.Interface.Stop()
}

func (s *apiServer) isSilent() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.silent
}

// bookmark says what a watch has come to.
func (s *apiServer) bookmark() watch.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return watch.Event{Type: watch.Bookmark, Object: &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{ResourceVersion: fmt.Sprint(s.version)}}}
}

// cut ends all watches, as a connection that breaks.
func (s *apiServer) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.watches {
		w.Stop()
	}
	s.watches = nil
}

// fail makes a request fail, once.
func (s *apiServer) fail(request string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails[request] = err
}

// when calls f before a request, once.
func (s *apiServer) when(request string, f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before[request] = f
}

// changes returns and forgets the requests for VolumeAttachments that change any.
func (s *apiServer) changes() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var changes []string
	for _, verb := range s.requests {
		if verb == "create" || verb == "delete" || verb == "update" || verb == "patch" {
			changes = append(changes, verb)
		}
	}
	s.requests = nil
	return strings.Join(changes, " ")
}

// put adds a VolumeAttachment as another program does.
func (s *apiServer) put(o *storagev1.VolumeAttachment) {
	s.t.Helper()
	s.mu.Lock()
	s.identify(o)
	s.mu.Unlock()
	if err := s.Tracker().Create(attachmentKind, o, ""); err != nil {
		s.t.Error(err)
	}
}

// drop removes one.
func (s *apiServer) drop(name string) {
	s.t.Helper()
	if err := s.Tracker().Delete(attachmentKind, "", name); err != nil {
		s.t.Error(err)
	}
}

// nodes are those that have VolumeAttachments.
func (s *apiServer) nodes() (all []string) {
	s.t.Helper()
	list, err := s.Tracker().List(attachmentKind, storagev1.SchemeGroupVersion.WithKind("VolumeAttachment"), "")
	if err != nil {
		s.t.Fatal(err)
	}
	for _, o := range list.(*storagev1.VolumeAttachmentList).Items {
		all = append(all, o.Spec.NodeName)
	}
	return all
}

// on is a volume that a node wants.
func on(node string) *csivol.Attachment {
	return &csivol.Attachment{Driver: "d", Handle: "h", Node: node, FlexDriver: "example.com/disk", Name: "pv", AccessModes: []csivol.AccessMode{csivol.ReadWriteOnce}}
}

// ofFlex is the VolumeAttachment that a daemon, or the controller, makes of it.
func ofFlex(want *csivol.Attachment, by string) *storagev1.VolumeAttachment {
	o := objects.NewAttachment(want, by)
	o.Status.Attached = true
	return o
}

// ofCSI is the one that the control plane makes for a CSI volume.
func ofCSI(want *csivol.Attachment) *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: objects.AttachmentName(want.Handle, want.Driver, want.Node)},
		Spec:       storagev1.VolumeAttachmentSpec{Attacher: want.Driver, NodeName: want.Node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: new("csi-pv")}},
		Status:     storagev1.VolumeAttachmentStatus{Attached: true},
	}
}

func leaving(o *storagev1.VolumeAttachment) *storagev1.VolumeAttachment {
	o.DeletionTimestamp, o.Finalizers = &metav1.Time{Time: time.Now()}, []string{"external-attacher/d"}
	return o
}

func nodeObject(name string, attached ...corev1.UniqueVolumeName) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, v := range attached {
		n.Status.VolumesAttached = append(n.Status.VolumesAttached, corev1.AttachedVolume{Name: v})
	}
	return n
}
