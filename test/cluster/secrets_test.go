package cluster

import (
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// testSecrets: a stage's Secret is read with a right that has to be given.
func testSecrets(t *testing.T, c *cluster) {
	w := newWorld(t, c, options{config: []string{"secrets: {nodeStage: {secretRef: {name: credentials, namespace: flex2csi}}}"}})
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "credentials"}, StringData: map[string]string{"password": "swordfish"}}
	_, err := w.Admin().CoreV1().Secrets("flex2csi").Create(t.Context(), secret, metav1.CreateOptions{})
	w.must(err)
	n, v := w.nodes[0], w.volumeWith("disk", map[string]string{"requireSecret": "password"})
	n.timeout = short
	n.mustFail(n.tryMount(v, "pod-a"), "credentials", "forbidden")
	w.Apply("../../install/rbac/node-secrets.yaml")
	n.timeout = patience
	n.retryMount(v, "pod-a")
	n.wantNowhere("swordfish")
	n.unmount(v, "pod-a")
	n.wantNothing()
}

// testForgotten: a node that was lost with its disk, and comes back under its
// name, gives back what it had; and a mount that comes first does not use it.
func testForgotten(t *testing.T, c *cluster) {
	w := newWorld(t, c, options{})
	n := w.nodes[0]
	for times, name := range []string{"unused", "used"} {
		v := w.volume(name)
		n.mount(v, "pod-a")
		n.crash()
		for _, dir := range []string{n.path("state"), filepath.Join(n.Root, "pods"), filepath.Join(n.Root, "plugins")} {
			w.must(os.RemoveAll(dir))
		}
		before := n.attachment(v)
		w.must(n.driver.Start())
		w.must(n.daemon.Start())
		if name == "used" {
			n.retryMount(v, "pod-a")
			if o := n.attachment(v); o == nil || o.UID == before.UID {
				t.Errorf("mounted with the attachment of the machine before: %+v", o)
			}
			n.unmount(v, "pod-a")
		}
		n.wantNothing()
		w.wantAttached(v.handle, 1+times)
	}
}
