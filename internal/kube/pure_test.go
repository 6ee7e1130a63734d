package kube

import (
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

func TestClassify(t *testing.T) {
	for _, test := range []struct{ method, path, want string }{
		{"GET", "/apis/storage.k8s.io/v1/volumeattachments", "list volumeattachments"},
		{"GET", "/apis/storage.k8s.io/v1/volumeattachments?watch=true", "watch volumeattachments"},
		{"GET", "/apis/storage.k8s.io/v1/volumeattachments/csi-1", "get volumeattachments"},
		{"DELETE", "/apis/storage.k8s.io/v1/volumeattachments/csi-1", "delete volumeattachments"},
		{"GET", "/api/v1/namespaces/default/secrets/key", "get secrets"},
		{"GET", "/api/v1/namespaces/default", "get namespaces"},
		{"POST", "/api/v1/namespaces/default/serviceaccounts/app/token", "create serviceaccounts/token"},
		{"PATCH", "/api/v1/namespaces/default/events/x", "patch events"},
		{"PUT", "/apis/coordination.k8s.io/v1/namespaces/x/leases/y", "update leases"},
		{"GET", "/version", "get /version"},
	} {
		q, err := http.NewRequestWithContext(t.Context(), test.method, "https://host"+test.path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if verb, resource := classify(q); verb+" "+resource != test.want {
			t.Errorf("%s %s is %s %s, want %s", test.method, test.path, verb, resource, test.want)
		}
	}
}

// TestCodes: what the API server says of itself is another thing than what it
// says of a request.
func TestCodes(t *testing.T) {
	resource := schema.GroupResource{Group: "storage.k8s.io", Resource: "volumeattachments"}
	for _, test := range []struct {
		err     error
		code    flex.Code
		refused bool
	}{
		{apierrors.NewForbidden(resource, "x", nil), flex.CodePermissionDenied, true},
		{apierrors.NewUnauthorized("who?"), flex.CodePermissionDenied, true},
		{apierrors.NewBadRequest("what?"), flex.CodeInvalidArgument, true},
		{apierrors.NewNotFound(resource, "x"), flex.CodeNotFound, false},
		{apierrors.NewConflict(resource, "x", nil), flex.CodeAborted, false},
		{apierrors.NewTooManyRequests("later", 1), flex.CodeUnavailable, false},
		{apierrors.NewTimeoutError("slow", 1), flex.CodeUnavailable, false},
		{apierrors.NewInternalError(os.ErrClosed), flex.CodeUnavailable, false},
		{os.ErrDeadlineExceeded, flex.CodeUnavailable, false},
	} {
		if code, no := codeOf(test.err), isRefused(test.err); code != test.code || no != test.refused {
			t.Errorf("%v: %s, refused %t; want %s, %t", test.err, code, no, test.code, test.refused)
		}
	}
}

// TestStateFile: one that is spoiled, or of another release, is nothing known.
func TestStateFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "csidrivers")
	if got, err := readStateFile(path); err != nil || got != nil {
		t.Errorf("no file: %v, %v", got, err)
	}
	want := map[string]csivol.DriverInfo{
		"a": {AttachRequired: true, FSGroupPolicy: "File", Tokens: []csivol.TokenRequest{{Audience: "x", Expiration: time.Hour}}},
		"b": {PodInfoOnMount: true, RequiresRepublish: true, TokensInSecrets: true},
	}
	if err := writeStateFile(path, want); err != nil {
		t.Fatal(err)
	}
	got, err := readStateFile(path)
	if diff := cmp.Diff(want, got); diff != "" || err != nil || !reflect.DeepEqual(want, got) {
		t.Errorf("%v, %s", err, diff)
	}
	for text, bad := range map[string]bool{"{": true, `{"version": 2, "csiDrivers": {"a": {}}}`: false, strings.Repeat(" ", maxStateFile+1): true} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := readStateFile(path); (err != nil) != bad || got != nil {
			t.Errorf("%.20q: %v, %v", text, got, err)
		}
	}
}

// TestRefresh: after 80 % of its life, and a little before.
func TestRefresh(t *testing.T) {
	now := time.Now()
	for life, want := range map[time.Duration]time.Duration{time.Hour: 48 * time.Minute, 100 * time.Hour: 24 * time.Hour} {
		at := refreshAt(now, &authenticationv1.TokenRequest{Status: authenticationv1.TokenRequestStatus{ExpirationTimestamp: metav1.NewTime(now.Add(life))}})
		if in := at.Sub(now); in > want || in < want-10*time.Second {
			t.Errorf("a token of %v is renewed after %v, want %v", life, in, want)
		}
	}
}

// TestIsSameSpec: every field of the request counts.
func TestIsSameSpec(t *testing.T) {
	fill := func() *csivol.Attachment {
		return &csivol.Attachment{Driver: "d", Handle: "h", Node: "n", AccessModes: []csivol.AccessMode{csivol.ReadWriteOnce}}
	}
	base := objects.AttachmentSpec(fill())
	for name, change := range map[string]func(*csivol.Attachment){
		"context": func(a *csivol.Attachment) { a.Context = map[string]string{"a": "b"} },
		"fsType":  func(a *csivol.Attachment) { a.FSType = "xfs" },
		"flags":   func(a *csivol.Attachment) { a.MountFlags = []string{"ro"} },
		"modes":   func(a *csivol.Attachment) { a.AccessModes = []csivol.AccessMode{csivol.ReadWriteMany} },
		"ro":      func(a *csivol.Attachment) { a.ReadOnly = true },
		"secret":  func(a *csivol.Attachment) { a.Secret = &csivol.SecretRef{Name: "s"} },
	} {
		a := fill()
		change(a)
		if isSameSpec(base, objects.AttachmentSpec(a)) {
			t.Errorf("another %s is the same request", name)
		}
		if !isSameSpec(objects.NewAttachment(a, "node").Spec.Source.InlineVolumeSpec, objects.AttachmentSpec(a)) {
			t.Errorf("%s: the object asks for something else", name)
		}
	}
	a := fill()
	a.Context, a.MountFlags = map[string]string{}, []string{}
	if !isSameSpec(base, objects.AttachmentSpec(a)) || !isSameSpec(objects.AttachmentSpec(a), base) {
		t.Error("nothing and none are two requests")
	}
	if isSameSpec(nil, base) {
		t.Error("what names a PersistentVolume is the same request")
	}
}

func TestClip(t *testing.T) {
	for _, text := range []string{"short", strings.Repeat("x", 2000), strings.Repeat("ü", 1000), "x" + strings.Repeat("…", 700)} {
		got := clipText(text)
		if len(got) > maxDriverText+len("…") || !utf8.ValidString(got) || len(text) <= maxDriverText && got != text {
			t.Errorf("%.10s… became %d bytes, valid %t", text, len(got), utf8.ValidString(got))
		}
	}
}

// TestBefore is an order.
func TestBefore(t *testing.T) {
	at := func(seconds int64, name string) *storagev1.VolumeAttachment {
		return &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Unix(seconds, 0)}}
	}
	all := []*storagev1.VolumeAttachment{at(1, "b"), at(2, "a"), at(2, "c")}
	for i, a := range all {
		for j, b := range all {
			if isBefore(a, b) != (i < j) {
				t.Errorf("%d before %d: %t", i, j, isBefore(a, b))
			}
		}
	}
}

// TestSignal: who begins to wait misses no change after that.
func TestSignal(t *testing.T) {
	var s signal
	s.broadcast()
	first, second := s.next(), s.next()
	select {
	case <-first:
		t.Error("woken by what was before")
	default:
	}
	s.broadcast()
	<-first
	<-second
	select {
	case <-s.next():
		t.Error("woken twice")
	default:
	}
}

// TestVolumesAreBounded: the oldest is forgotten.
func TestVolumesAreBounded(t *testing.T) {
	var v volumes
	for i := range maxVolumes + 1 {
		if err := v.put(&csivol.PersistentVolume{Name: string(rune('a' + i))}); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok := v.seen["a"]; ok || len(v.seen) != maxVolumes {
		t.Errorf("%d are kept, the first %t", len(v.seen), ok)
	}
}

func boundVolume(name string) *csivol.PersistentVolume {
	return &csivol.PersistentVolume{
		Name: name, UID: "u-" + name, FlexDriver: "example.com/disk", Source: csivol.Source(map[string]string{"password": "hunter2"}, "ext4"),
		AccessModes: []csivol.AccessMode{csivol.ReadWriteOnce}, Claim: csivol.ObjectRef{Namespace: "shop", Name: "data", UID: "c1"},
	}
}

// restarted is what the next process knows.
func restarted(t *testing.T, path string) *volumes {
	t.Helper()
	var v volumes
	if err := v.read(path); err != nil {
		t.Fatal(err)
	}
	return &v
}

// TestVolumesAreKept: the next process knows which claim a volume has, for a day,
// and without its options.
func TestVolumesAreKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "persistentvolumes")
	v := restarted(t, path)
	released, csi := boundVolume("released"), boundVolume("csi")
	released.Released, csi.FlexDriver = true, ""
	for _, pv := range []*csivol.PersistentVolume{boundVolume("a"), boundVolume("b"), released, csi, {Name: "unbound", FlexDriver: "example.com/disk"}} {
		if err := v.put(pv); err != nil {
			t.Fatal(err)
		}
	}
	next := restarted(t, path)
	if diff := cmp.Diff(boundVolume("a"), next.get("a").volume); diff != "" || next.get("a").asked || len(next.seen) != 2 {
		t.Errorf("%d are kept, asked %t: %s", len(next.seen), next.get("a").asked, diff)
	}
	if data, err := os.ReadFile(path); err != nil || strings.Contains(string(data), "hunter2") {
		t.Errorf("%v, %s", err, data)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if err := next.forget("a"); err != nil {
		t.Fatal(err)
	}
	if err := next.put(&csivol.PersistentVolume{Name: "b"}); err != nil { // the CSI volume that took its place
		t.Fatal(err)
	}
	if last := restarted(t, path); len(last.seen) != 0 {
		t.Errorf("what is gone is kept: %+v", last.seen)
	}
}

// TestVolumesAreKeptForADay: by the clock of the API server's last word.
func TestVolumesAreKeptForADay(t *testing.T) {
	for age, want := range map[time.Duration]bool{time.Minute: true, 23 * time.Hour: true, 25 * time.Hour: false, -time.Hour: false} {
		path := filepath.Join(t.TempDir(), "persistentvolumes")
		v := restarted(t, path)
		v.note(boundVolume("a"), time.Now().Add(-age))
		if err := v.write(); err != nil {
			t.Fatal(err)
		}
		if got := restarted(t, path).get("a").volume != nil; got != want {
			t.Errorf("after %v: known %t, want %t", age, got, want)
		}
	}
}

// TestVolumesAreWrittenOnce: a volume that stays as it is costs a write each hour,
// and a write that failed is made with the next one.
func TestVolumesAreWrittenOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "persistentvolumes")
	v := restarted(t, path)
	now := time.Now().Add(-3 * time.Hour)
	var changes []bool
	for _, seen := range []struct {
		name string
		when time.Time
	}{{"a", now}, {"a", now.Add(time.Minute)}, {"a", now.Add(2 * time.Hour)}, {"b", now}} {
		v.changed = false
		v.note(boundVolume(seen.name), seen.when)
		changes = append(changes, v.changed)
	}
	if diff := cmp.Diff([]bool{true, false, true, true}, changes); diff != "" {
		t.Error(diff)
	}
	v.path = filepath.Join(path, "none")
	if err := v.write(); err == nil {
		t.Fatal("it was written")
	}
	v.path = path
	if err := v.write(); err != nil {
		t.Fatal(err)
	}
	if next := restarted(t, path); len(next.seen) != 2 || v.changed {
		t.Errorf("%d are kept, changed since: %t", len(next.seen), v.changed)
	}
}

// TestVolumesFile: one that is spoiled, or of another release, is nothing known.
func TestVolumesFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "persistentvolumes")
	for text, bad := range map[string]bool{"{": true, `{"version": 2, "persistentVolumes": [{"persistentVolume": {"name": "a"}}]}`: false, `{"version": 1, "persistentVolumes": [{}]}`: false, strings.Repeat(" ", maxVolumesBytes+1): true} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var v volumes
		if err := v.read(path); (err != nil) != bad || len(v.seen) != 0 {
			t.Errorf("%.20q: %v, %v", text, v.seen, err)
		}
		if err := v.put(boundVolume("a")); err != nil || restarted(t, path).get("a").volume == nil {
			t.Errorf("%.20q is not replaced: %v", text, err)
		}
	}
}
