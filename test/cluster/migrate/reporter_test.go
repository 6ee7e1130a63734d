package migrate_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/bridgestatus"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/kube"
	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// testReporter: a node tells of its own volumes with the rights of install/migrate,
// as soon as it has them, and of no others'.
func testReporter(w *world) {
	w.ServiceAccount(migrate.Namespace, "flex2csi-node")
	tokens := map[string]string{}
	for _, node := range []string{"node-2"} {
		// As a daemon's pod: its token names the node.
		pod := w.Pod(migrate.Namespace, "daemon-"+node, node, "flex2csi-node")
		tokens[node] = w.ServiceAccountToken(pod)
	}
	w.Apply("../../../install/rbac/node.yaml")
	_ = w.Admin().CoreV1().ConfigMaps(bridgestatus.Namespace).Delete(w.t.Context(), "node-2", metav1.DeleteOptions{})

	w.disk("told")
	pod := w.pod("told", "node-2", "told")
	w.attached("told", "node-2")
	says(w.t, w.one("told"), migrate.Offline, "bridge", migrate.NotLive, "has written no ConfigMap")
	record := &volstate.Record{
		FlexDriver: flexDriver, Driver: csiDriver, Handle: "vol-told", Name: "told", Stage: volstate.Done, StagingPath: "/stage",
		Targets: map[string]*volstate.Target{"/x": {Pod: csivol.Pod{UID: string(pod.UID)}, Publish: volstate.Done, TargetPath: "/p"}},
	}
	var mu sync.Mutex
	var records []*volstate.Record
	reporter := &bridgestatus.NodeReporter{
		Node: "node-2", BootID: bootID, Version: "v1", Every: 50 * time.Millisecond, Pause: 50 * time.Millisecond,
		Records: func() []*volstate.Record { mu.Lock(); defer mu.Unlock(); return records },
		Staging: func(*volstate.Record) string { return "/stage" },
		Put:     w.as("node-2", tokens["node-2"]).PutNodeVolumes,
		Log:     slog.New(slog.NewTextHandler(w.t.Output(), nil)),
	}
	ctx, stop := context.WithCancel(w.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		reporter.Run(ctx)
	}()
	defer func() { stop(); <-done }()
	w.Apply("../../../install/migrate/volumes.yaml")
	testenv.Eventually(w.t, "an empty document is there", func() bool { return strings.Contains(bridgeCheck(w.one("told")), "does not have the volume") })
	mu.Lock()
	records = append(records, record)
	mu.Unlock()
	testenv.Eventually(w.t, "the volume is told of", func() bool { return w.one("told").Method == migrate.Live })

	testenv.Eventually(w.t, "the policy holds", func() bool {
		err := w.as("bare", tokens["node-2"]).PutNodeVolumes(w.t.Context(), "{}")
		return err != nil && strings.Contains(err.Error(), "the token is that of node node-2, and the ConfigMap is that of bare")
	})

	// A node that flex2csi is taken away from takes its own away.
	stop()
	<-done
	w.check(w.as("node-2", tokens["node-2"]).DropNodeVolumes(w.t.Context(), "node-2"))
	_, err := w.Admin().CoreV1().ConfigMaps(bridgestatus.Namespace).Get(w.t.Context(), "node-2", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		w.t.Errorf("what node-2 has told is left: %v", err)
	}
	other := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "bare"}} // one that is not there is no error
	if _, err := w.Admin().CoreV1().ConfigMaps(bridgestatus.Namespace).Create(w.t.Context(), other, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		w.check(err)
	}
	if err := w.as("node-2", tokens["node-2"]).DropNodeVolumes(w.t.Context(), "bare"); err == nil {
		w.t.Error("node-2 may take away what another has told")
	}
}

func bridgeCheck(v *migrate.PlannedVolume) string {
	for _, c := range v.Checks {
		if c.Name == "bridge" {
			return c.Evidence
		}
	}
	return ""
}

// as is the way to the API server of the daemon of a node.
func (w *world) as(node, token string) *kube.Cluster {
	w.t.Helper()
	c, err := kube.Connect(kube.Options{Kubeconfig: w.Kubeconfig(token), Node: node, UserAgent: "flex2csi-test"})
	w.check(err)
	return c
}
