package e2e

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// secretScenarios are volumes that need a password, which the CSI driver checks.
func secretScenarios() []scenario {
	return []scenario{
		{"secret", "a password of the volume's Secret gets to the driver, and into no log, event, record or object", secretKept},
		{"secret-wrong", "a wrong password: the driver's word in an event; the pod starts when it is mended", secretWrong},
	}
}

const canary = "canary-5f1e-correct-horse"

// securedVolume wants the canary.
func (t *T) securedVolume() *volume {
	t.Helper()
	sum := sha256.Sum256([]byte(canary))
	return t.volume(secured(), "data", option("passwordSHA256", hex.EncodeToString(sum[:])), secret("password"))
}

func secretKept(t *T) {
	t.makeSecret("password", secured(), map[string]string{"password": canary})
	v := t.securedVolume()
	pod := t.start("pod", v.at("/data"))
	t.sh(pod, "echo x > /data/file")
	t.wantNoSecret()
	t.delete(pod)
	t.wantNoSecret()
}

// wantNoSecret looks for the password wherever a user might find it who may not read the
// Secret.
func (t *T) wantNoSecret() {
	t.Helper()
	dir := t.TempDir()
	for _, namespace := range []string{installed, "csi"} {
		t.must(t.keepLogs(filepath.Join(dir, "logs", namespace), namespace))
	}
	objects, err := t.kubectl("get", "pods,pvc,pv,events,volumeattachments", "-A", "-o", "yaml")
	t.must(withText(err, objects))
	t.must(writeFile(filepath.Join(dir, "objects"), objects))
	places := []string{dir, "/var/lib/flex2csi", "/run/flex2csi", pluginDir}
	for _, file := range t.partLogs() {
		places = append(places, file)
	}
	files := 0
	for _, place := range places {
		t.must(filepath.WalkDir(place, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return ignoreGone(err)
			}
			files++
			return t.wantNotIn(path)
		}))
	}
	if files < 10 {
		t.Errorf("only %d files were looked at", files)
	}
}

// wantNotIn looks into one file, which may be gone by now.
func (t *T) wantNotIn(path string) error {
	t.Helper()
	text, err := os.ReadFile(path)
	for _, form := range []string{canary, base64.StdEncoding.EncodeToString([]byte(canary))} {
		if strings.Contains(string(text), form) {
			t.Errorf("%s has the password in it", path)
		}
	}
	return ignoreGone(err)
}

func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func secretWrong(t *T) {
	t.makeSecret("password", secured(), map[string]string{"password": "canary-wrong"})
	v := t.securedVolume()
	pod := t.create(t.newPod("pod", v.at("/data")))
	t.waitEvent(pod, "NodeStageVolume")
	if events := t.eventsOf(pod.Name); strings.Contains(events, "canary-wrong") {
		t.Errorf("the events have the password: %s", events)
	}
	secrets := t.client.CoreV1().Secrets(t.Namespace)
	right, err := secrets.Get(t.ctx(), "password", metav1.GetOptions{})
	t.must(err)
	right.StringData = map[string]string{"password": canary}
	_, err = secrets.Update(t.ctx(), right, metav1.UpdateOptions{})
	t.must(err)
	t.waitReady(pod)
	t.sh(pod, "echo x > /data/file")
	t.delete(pod)
}
