package contract

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

// randomSecret is found in no other text and has characters that the various
// spellings escape.
func randomSecret() string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails
	return `p@ss/w"<` + hex.EncodeToString(b[:]) + `>&\+ x`
}

// spellings are the forms in which a secret can leak. Each begins and ends
// with the random part, whatever surrounds it.
func spellings(secret string) []string {
	random := secret[8 : 8+24]
	encoded := base64.StdEncoding.EncodeToString([]byte(secret))
	return []string{random, encoded, strings.TrimRight(encoded, "="), base64.URLEncoding.EncodeToString([]byte(secret)), url.QueryEscape(secret)}
}

// checkNoSecret searches every channel: the kubelet's log and events, the
// errors, the answers, and every file that has changed since begin.
func (n *node) checkNoSecret(secret string, begin time.Time, texts ...string) {
	n.t.Helper()
	klog.Flush()
	texts = append(texts, n.log.String())
	for len(n.events.Events) > 0 {
		texts = append(texts, <-n.events.Events)
	}
	for _, c := range n.runner.made() {
		texts = append(texts, c.output)
	}
	for file, body := range changedFiles(n.t, begin, filepath.Dir(n.work), "/run", "/tmp", "/var/tmp", "/var/log", "/dev/shm") {
		texts = append(texts, file+": "+body)
	}
	for _, text := range texts {
		for _, s := range spellings(secret) {
			if at := strings.Index(text, s); at >= 0 {
				n.t.Errorf("the secret, as %q, is in %.300q", s, text[max(0, at-150):])
			}
		}
	}
}

// changedFiles reads the small files below dirs that are not older than begin.
func changedFiles(t *testing.T, begin time.Time, dirs ...string) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				if body, err := readIfChanged(d, path, begin); err == nil {
					files[path] = body
				}
			}
			return nil // others' files come and go in these directories
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// readIfChanged returns nothing for a file that is older than begin or big.
func readIfChanged(d fs.DirEntry, path string, begin time.Time) (string, error) {
	info, err := d.Info()
	if err != nil || info.ModTime().Before(begin) || info.Size() > 1<<20 {
		return "", err
	}
	body, err := os.ReadFile(path)
	return string(body), err
}

// TestFailingMountTellsNoSecret in whatever way it fails: the secrets are in
// the arguments of mount, and users paste the event into bug reports.
func TestFailingMountTellsNoSecret(t *testing.T) {
	tests := map[string]struct {
		fsType  string
		options map[string]string // $SECRET stands for the secret
	}{
		"no volume":              {"", nil},
		"unknown option":         {"", map[string]string{"medium": "memory", "nonsense": "$SECRET"}},
		"unknown key":            {"", map[string]string{"medium": "memory", "$SECRET": "x"}},
		"bad mount option":       {"", map[string]string{"medium": "memory", "mountOptions": "nonsense=$SECRET"}},
		"password mount option":  {"cifs", map[string]string{"source": "//127.0.0.1/x", "mountOptions": "password=$SECRET"}},
		"cifs without a server":  {"cifs", map[string]string{"source": "//127.0.0.1/x"}},
		"source with a password": {"cifs", map[string]string{"source": "//user:$SECRET@127.0.0.1/x"}},
		"nfs without a server":   {"nfs", map[string]string{"source": "127.0.0.1:/x", "mountOptions": "timeo=1,retry=0,retrans=1"}},
		"ceph without a server":  {"ceph", map[string]string{"source": "127.0.0.1:/", "mountOptions": "mount_timeout=1"}},
		"device is no disk":      {"ext4", map[string]string{"device": "/dev/null"}},
		"image is not allowed":   {"ext4", map[string]string{"image": "/etc/$SECRET"}},
		"bad size":               {"", map[string]string{"medium": "memory", "size": "$SECRET"}},
		"removed option":         {"ext4", map[string]string{"image": "$IMAGES/x.img", "size": "64Mi", "mkfsOptions": "-O $SECRET"}},
	}
	for _, name := range slices.Sorted(maps.Keys(tests)) {
		test := tests[name]
		t.Run(name, func(t *testing.T) {
			begin := time.Now().Add(-time.Second) // clocks of file systems are coarse
			n := newNode(t, false)
			v, pod, secret := n.newVolume(memory(), "pv-1"), newPod("a"), randomSecret()
			n.newSecret(v, driverName, map[string]string{"username": "user", "password": secret, "key": secret, "x": "u"})
			replace := strings.NewReplacer("$SECRET", secret, "$IMAGES", n.images())
			options := map[string]string{}
			for key, value := range test.options {
				options[replace.Replace(key)] = replace.Replace(value)
			}
			v.pv.Spec.FlexVolume.FSType, v.pv.Spec.FlexVolume.Options = test.fsType, options
			err := n.mount(v, pod)
			if err == nil {
				t.Fatal("mounted")
			}
			n.checkNoSecret(secret, begin, err.Error())
			if c := n.runner.last(t, "mount"); !strings.Contains(c.args[2], spellings(secret)[1]) {
				t.Error("the secret was not in the arguments: the test has lost its grip")
			}
			checkFailedSetup(n, v, pod)
		})
	}
}

// TestMountTellsNoSecretOnAnyWay succeeds, and the volume is taken down.
func TestMountTellsNoSecretOnAnyWay(t *testing.T) {
	begin := time.Now().Add(-time.Second)
	n := newNode(t, false)
	v, pod, secret := n.newVolume(imageExt4(), "pv-1"), newPod("a"), randomSecret()
	n.newSecret(v, driverName, map[string]string{"password": secret})
	n.must(n.mount(v, pod))
	n.takeDown(v, pod)
	n.checkNoSecret(secret, begin)
}

// TestSecretNearTheLimitOfAnArgument: Linux takes 128 KiB, of which base64 and
// the other options leave some 90 KiB.
func TestSecretNearTheLimitOfAnArgument(t *testing.T) {
	forKinds(t, []kind{memory(), csiExt4()}, onlyDetached(), func(t *testing.T, n *node, v *vol) {
		pod := newPod("a")
		n.newSecret(v, v1.SecretType(driverName), map[string]string{"big": strings.Repeat("x<", 45<<10)})
		n.must(n.mount(v, pod))
		if got := len(n.runner.last(t, "mount").args[2]); got < 120000 {
			t.Errorf("the argument had %d bytes: the test has lost its grip", got)
		}
		n.takeDown(v, pod)
	})
}
