package mapping_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

type secretMap = map[string]flex.Secret

func secret(s string) flex.Secret { return flex.NewSecret([]byte(s)) }

func privateFile(t testing.TB, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestSecretsByStage(t *testing.T) {
	object := privateFile(t, "user: admin\npassword: 'hunter2'\n")
	value := privateFile(t, "hunter3\r\n")
	m := mapper(t, func(d *bridgeconfig.Driver) {
		d.Secrets = bridgeconfig.Secrets{
			NodeStage:         &bridgeconfig.SecretSource{FromFlexSecret: user("userID", "user", "userKey", "key")},
			NodePublish:       &bridgeconfig.SecretSource{FromFlexSecret: user("token", "key")},
			ControllerPublish: &bridgeconfig.SecretSource{File: object},
			NodeExpand:        &bridgeconfig.SecretSource{File: value, Key: "passphrase"},
		}
	})
	fromFiles := csivol.Secrets{
		ControllerPublish: secretMap{"user": secret("admin"), "password": secret("hunter2")},
		NodeExpand:        secretMap{"passphrase": secret("hunter3")},
	}
	all := fromFiles
	all.NodeStage = secretMap{"userID": secret("kim"), "userKey": secret("AQ==")}
	all.NodePublish = secretMap{"token": secret("AQ==")}

	mount := flex.Options{VolumeName: "pv", PodUID: "1", User: user("volumeID", "x"), Secrets: secretMap{"user": secret("kim"), "key": secret("AQ=="), "other": secret("o")}}
	attach := flex.Options{VolumeName: "pv", User: user("volumeID", "x")}
	for name, tt := range map[string]struct {
		options flex.Options
		want    csivol.Secrets
	}{"mount": {mount, all}, "attach": {attach, fromFiles}} {
		got, err := m.Map(t.Context(), tt.options, nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(tt.want, got.Secrets); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if err := os.Remove(value); err != nil { // of no concern to detach
		t.Fatal(err)
	}
	got, err := m.AttachSecrets(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(fromFiles.ControllerPublish, got); diff != "" {
		t.Errorf("AttachSecrets (-want +got):\n%s", diff)
	}
	if err := os.WriteFile(value, []byte("hunter3"), 0o600); err != nil {
		t.Fatal(err)
	}

	mount.Secrets = secretMap{"user": secret("kim"), "other": secret("hunter4")}
	const want = `secrets.nodeStage: the volume's Secret has no key "key", only ["other" "user"]`
	if _, err := m.Map(t.Context(), mount, nil); err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	mount.Secrets = nil
	if _, err := m.Map(t.Context(), mount, nil); err == nil || !strings.Contains(err.Error(), "it has no Secret: set secretRef") {
		t.Errorf("got %v", err)
	}
}

// TestOptionalSecrets: those are left out that the volume's Secret lacks.
func TestOptionalSecrets(t *testing.T) {
	m := mapper(t, func(d *bridgeconfig.Driver) {
		d.Secrets.NodeStage = &bridgeconfig.SecretSource{FromFlexSecret: user("username", "user", "domain", "domain"), Optional: []string{"domain"}}
		d.Secrets.NodePublish = &bridgeconfig.SecretSource{FromFlexSecret: user("token", "token"), Optional: []string{"token"}}
	})
	for _, tt := range []struct {
		name    string
		has     secretMap
		stage   secretMap
		publish secretMap
		err     string
	}{
		{name: "all", has: secretMap{"user": secret("kim"), "domain": secret("d"), "token": secret("t")}, stage: secretMap{"username": secret("kim"), "domain": secret("d")}, publish: secretMap{"token": secret("t")}},
		{name: "none optional", has: secretMap{"user": secret("kim")}, stage: secretMap{"username": secret("kim")}, publish: secretMap{}},
		{name: "required", has: secretMap{"domain": secret("d")}, err: `secrets.nodeStage: the volume's Secret has no key "user", only ["domain"]`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := m.Map(t.Context(), flex.Options{VolumeName: "pv", PodUID: "1", User: user("volumeID", "x"), Secrets: tt.has}, nil)
			if tt.err != "" {
				if err == nil || err.Error() != tt.err {
					t.Fatalf("got  %v\nwant %s", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(csivol.Secrets{NodeStage: tt.stage, NodePublish: tt.publish}, got.Secrets); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestSecretRefs: each is asked for when it is needed, and not before: while the
// API server is away a mount does not fail for the secret of an expansion.
func TestSecretRefs(t *testing.T) {
	ref := func(name string) *bridgeconfig.SecretSource {
		return &bridgeconfig.SecretSource{SecretRef: &bridgeconfig.SecretRef{Namespace: "ns", Name: name}}
	}
	var asked []string
	plain := mapper(t, func(d *bridgeconfig.Driver) {
		d.Secrets = bridgeconfig.Secrets{ControllerPublish: ref("attach"), NodeStage: ref("stage"), NodePublish: ref("publish"), NodeExpand: ref("grow"), ControllerExpand: ref("expand")}
	})
	m := plain.WithSecrets(func(_ context.Context, r csivol.SecretRef) (map[string]flex.Secret, error) {
		asked = append(asked, r.Name)
		if r.Namespace != "ns" {
			t.Errorf("asked for %+v", r)
		}
		return secretMap{"key": secret(r.Name)}, nil
	})
	one := func(name string) secretMap { return secretMap{"key": secret(name)} }
	got := func(s csivol.Secrets, err error) csivol.Secrets {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	mapped := func(o flex.Options) csivol.Secrets {
		o.VolumeName, o.User = "pv", user("volumeID", "x")
		v, err := m.Map(t.Context(), o, nil)
		return got(v.Secrets, err)
	}
	for _, tt := range []struct {
		name, asked string
		get         func() csivol.Secrets
		want        csivol.Secrets
	}{
		{"mount", "stage publish", func() csivol.Secrets { return mapped(flex.Options{PodUID: "1"}) }, csivol.Secrets{NodeStage: one("stage"), NodePublish: one("publish")}},
		{"mountdevice", "stage", func() csivol.Secrets { return mapped(flex.Options{}) }, csivol.Secrets{NodeStage: one("stage")}},
		{"republish", "stage publish", func() csivol.Secrets { return got(m.StaticSecrets(t.Context())) }, csivol.Secrets{NodeStage: one("stage"), NodePublish: one("publish")}},
		{"expand", "grow expand", func() csivol.Secrets {
			var s csivol.Secrets
			err := m.ExpandSecrets(t.Context(), &s)
			return got(s, err)
		}, csivol.Secrets{NodeExpand: one("grow"), ControllerExpand: one("expand")}},
		{"attach", "attach", func() csivol.Secrets {
			s, err := m.AttachSecrets(t.Context())
			return got(csivol.Secrets{ControllerPublish: s}, err)
		}, csivol.Secrets{ControllerPublish: one("attach")}},
	} {
		asked = nil
		if diff := cmp.Diff(tt.want, tt.get()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
		if got := strings.Join(asked, " "); got != tt.asked {
			t.Errorf("%s asked for %s, want %s", tt.name, got, tt.asked)
		}
	}
	if _, err := plain.StaticSecrets(t.Context()); err == nil || !strings.Contains(err.Error(), "Secret ns/stage: this daemon has no access to the API server") {
		t.Errorf("without an API server: %v", err)
	}
}

// TestWithoutSecrets: who calls no CSI driver has neither the files of the nodes nor
// their rights.
func TestWithoutSecrets(t *testing.T) {
	m := mapper(t, func(d *bridgeconfig.Driver) {
		d.Secrets = bridgeconfig.Secrets{
			NodeStage:   &bridgeconfig.SecretSource{SecretRef: &bridgeconfig.SecretRef{Namespace: "ns", Name: "stage"}},
			NodePublish: &bridgeconfig.SecretSource{File: filepath.Join(t.TempDir(), "none"), Key: "key"},
		}
	}).WithoutSecrets().WithSecrets(func(context.Context, csivol.SecretRef) (map[string]flex.Secret, error) {
		return nil, errors.New("forbidden")
	})
	o := flex.Options{VolumeName: "pv", User: user("volumeID", "x")}
	if v, err := m.Map(t.Context(), o, nil); err != nil || v.Handle != "x" {
		t.Errorf("%+v, %v", v, err)
	}
}

// TestSecretFiles: a file that others can read is refused, and no error has
// anything of the content in it.
func TestSecretFiles(t *testing.T) {
	tests := []struct {
		name string
		make func(path string) error
		key  string
		want string // "": accepted
	}{
		{"object", write("password: hunter2"), "", ""},
		{"JSON", write(`{"password": "hunter2"}`), "", ""},
		{"value", write("hunter2: [\n"), "password", ""},
		{"read only", func(p string) error { return os.WriteFile(p, []byte("a: b"), 0o400) }, "", ""},
		{"missing", func(string) error { return nil }, "", "no such file or directory"},
		{"directory", func(p string) error { return os.Mkdir(p, 0o700) }, "", "not a regular file"},
		{"FIFO", func(p string) error { return syscall.Mkfifo(p, 0o600) }, "", "not a regular file"},
		{"others can read", func(p string) error { return os.WriteFile(p, []byte("hunter2"), 0o644) }, "", "has mode 0644, so that others can read or change it (chmod 0600)"},
		{"of another user", func(p string) error {
			if err := os.WriteFile(p, []byte("hunter2"), 0o600); err != nil {
				return err
			}
			return os.Chown(p, 12345, 12345)
		}, "", "belongs to the user with ID 12345 (chown root)"},
		{"too large", func(p string) error {
			return os.WriteFile(p, []byte(strings.Repeat(" ", 256<<10+1)), 0o600)
		}, "", "larger than 256 KiB"},
		{"empty", write(""), "", "empty, or neither YAML nor JSON"},
		{"no object", write("hunter2"), "", "want a YAML or JSON object, keys and values (for a file that is one value, set key)"},
		{"no YAML", write("a: b\nhunter2: [\n"), "", "line 2: neither YAML nor JSON"},
		{"alias", write("a: *hunter2\n"), "", "neither YAML nor JSON"},
		{"number", write("a: b\npassword: 12342\n"), "", "line 2: want a key that comes once and a text as its value (put quotes around it)"},
		{"twice", write("hunter2: b\nhunter2: c\n"), "", "line 2: want a key that comes once"},
		{"binary", write("\xffhunter2"), "password", `secrets.nodeStage: the value of "password" is not UTF-8 text`},
		{"large", write(strings.Repeat("hunter2", 9400)), "password", "secrets.nodeStage has 65808 bytes and may have 65536"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "secret")
			if err := tt.make(path); err != nil {
				if os.Geteuid() != 0 && tt.name == "of another user" {
					t.Skip("only root can give a file away")
				}
				t.Fatal(err)
			}
			m := mapper(t, func(d *bridgeconfig.Driver) {
				d.Secrets.NodeStage = &bridgeconfig.SecretSource{File: path, Key: tt.key}
			})
			v, err := m.Map(t.Context(), flex.Options{VolumeName: "pv", User: user("volumeID", "x")}, nil)
			if tt.want == "" {
				if err != nil || len(v.Secrets.NodeStage) != 1 {
					t.Errorf("got %v, %v", v, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v does not say %q", err, tt.want)
			}
			if text := fmt.Sprintf("%v %+v %#v", err, err, err); strings.Contains(text, "hunter") || strings.Contains(text, "12342") {
				t.Errorf("the error has a secret in it: %s", text)
			}
		})
	}
}

func write(content string) func(string) error {
	return func(path string) error { return os.WriteFile(path, []byte(content), 0o600) }
}
