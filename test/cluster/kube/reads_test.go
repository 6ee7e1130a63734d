package kube_test

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/test/controlplane"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// testVolumes: a PersistentVolume is asked for once.
func testVolumes(t *testing.T, p *controlplane.Plane) {
	d := start(t, p, "node-1")
	p.FlexVolume("pv-read", flexDriver, "xfs", map[string]string{"volumeID": "x"}, corev1.ReadWriteOnce, corev1.ReadOnlyMany)
	d.proxy.Requests()
	for range 5 {
		v, err := d.cluster.PersistentVolume(t.Context(), "pv-read", false)
		if err != nil {
			t.Fatal(err)
		}
		if v.UID == "" || v.Claim.UID == "" {
			t.Errorf("UIDs of %+v", v)
		}
		want := &csivol.PersistentVolume{
			Name: "pv-read", UID: v.UID, FlexDriver: flexDriver, Source: csivol.Source(map[string]string{"volumeID": "x"}, "xfs"),
			AccessModes: []csivol.AccessMode{csivol.ReadWriteOnce, csivol.ReadOnlyMany},
			Claim:       csivol.ObjectRef{Namespace: "default", Name: "pv-read", UID: v.Claim.UID},
		}
		if diff := cmp.Diff(want, v); diff != "" {
			t.Error(diff)
		}
	}
	if got := d.proxy.Requests(); !maps.Equal(got, map[string]int{"get persistentvolumes": 1}) {
		t.Errorf("asked for %v", got)
	}
	_, err := d.cluster.PersistentVolume(t.Context(), "pv-none", false)
	says(t, err, flex.CodeNotFound, "pv-none")
	d.proxy.Away()
	_, err = d.cluster.PersistentVolume(t.Context(), "pv-none", false)
	says(t, err, flex.CodeUnavailable, "pv-none")
	if _, err := d.cluster.PersistentVolume(t.Context(), "pv-read", false); err != nil {
		t.Error(err)
	}
	_, err = d.cluster.PersistentVolume(t.Context(), "pv-read", true)
	says(t, err, flex.CodeUnavailable, "pv-read")
}

// testSecrets: values are read by reference, and never said.
func testSecrets(t *testing.T, p *controlplane.Plane) {
	d := start(t, p, "node-1")
	ref := csivol.SecretRef{Namespace: "default", Name: "storage-key"}
	_, err := d.cluster.Secret(t.Context(), ref)
	says(t, err, flex.CodeNotFound, "default/storage-key")
	secrets := p.Admin().CoreV1().Secrets("default")
	o, err := secrets.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: ref.Name}, Data: map[string][]byte{"key": []byte("hunter2")}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	d.proxy.Requests()
	for range 5 {
		values, err := d.cluster.Secret(t.Context(), ref)
		if err != nil || len(values) != 1 || string(values["key"].Reveal()) != "hunter2" {
			t.Errorf("got %d values, %v", len(values), err)
		}
		delete(values, "key") // they are the caller's
	}
	if got := d.proxy.Requests(); !maps.Equal(got, map[string]int{"get secrets": 1}) {
		t.Errorf("asked for %v", got)
	}
	o.Data["key"] = []byte("hunter3")
	if _, err := secrets.Update(t.Context(), o, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(10 * time.Second) // what is known is not asked for before
	d.proxy.Away()
	if values, err := d.cluster.Secret(t.Context(), ref); err != nil || string(values["key"].Reveal()) != "hunter2" {
		t.Errorf("away: %v", err)
	}
	d.proxy.Back()
	if values, err := d.cluster.Secret(t.Context(), ref); err != nil || string(values["key"].Reveal()) != "hunter3" {
		t.Errorf("back: %v", err)
	}
}

// testTokens: a pod's token is asked for once, and bound to the pod.
func testTokens(t *testing.T, p *controlplane.Plane) {
	d := start(t, p, "node-1")
	p.ServiceAccount("default", "app")
	o := p.Pod("default", "app", "node-1", "app")
	pod := csivol.Pod{Namespace: "default", Name: "app", UID: string(o.UID), ServiceAccount: "app"}
	d.proxy.Requests()
	wanted := []csivol.TokenRequest{{Audience: "vault", Expiration: 15 * time.Minute}, {}}
	var first string
	for range 3 {
		secret, err := d.cluster.Tokens(t.Context(), pod, wanted)
		if err != nil {
			t.Fatal(err)
		}
		text := string(secret.Reveal())
		if first == "" {
			first = text
		}
		if text != first {
			t.Error("there is another token already")
		}
	}
	if got := d.proxy.Requests(); !maps.Equal(got, map[string]int{"create serviceaccounts/token": 2}) {
		t.Errorf("asked for %v", got)
	}
	var tokens map[string]struct {
		Token               string
		ExpirationTimestamp time.Time
	}
	if err := json.Unmarshal([]byte(first), &tokens); err != nil || len(tokens) != 2 {
		t.Fatalf("%d tokens, %v", len(tokens), err)
	}
	if left := time.Until(tokens["vault"].ExpirationTimestamp); left < 10*time.Minute || left > 16*time.Minute {
		t.Errorf("it ends in %v", left)
	}
	claims, err := base64.RawURLEncoding.DecodeString(strings.Split(tokens["vault"].Token, ".")[1])
	if err != nil || !strings.Contains(string(claims), string(o.UID)) || !strings.Contains(string(claims), `"aud":["vault"]`) {
		t.Errorf("it is for another pod or audience: %v", err)
	}
	pod.UID = "another"
	_, err = d.cluster.Tokens(t.Context(), pod, wanted)
	says(t, err, flex.CodeAborted, "service account default/app for pod app")
	pod.ServiceAccount = "none"
	_, err = d.cluster.Tokens(t.Context(), pod, wanted)
	says(t, err, flex.CodeNotFound, "default/none")
}

// testNotices: an Event about a PersistentVolume, and not one for each of many
// equal notices.
func testNotices(t *testing.T, p *controlplane.Plane) {
	d := start(t, p, "node-1")
	for range 100 {
		d.cluster.Notify(csivol.Event{PersistentVolume: "pv-noticed", Reason: "VolumeStuck", Message: "look at it"})
	}
	events := func() (found []corev1.Event) {
		list, err := p.Admin().CoreV1().Events("").List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=pv-noticed"})
		if err != nil {
			t.Error(err)
			return nil
		}
		return list.Items
	}
	testenv.Eventually(t, "there is an event", func() bool {
		found := events()
		return len(found) == 1 && found[0].Count > 1 && found[0].Count <= 25 && found[0].Source.Host == "node-1" && found[0].Source.Component == "flex2csi" &&
			found[0].InvolvedObject.Kind == "PersistentVolume" && found[0].Namespace == "default"
	})
	time.Sleep(300 * time.Millisecond)
	asked := d.proxy.Requests()
	if n := asked["create events"] + asked["patch events"]; n > 25 {
		t.Errorf("100 equal notices are %d requests", n)
	}
}
