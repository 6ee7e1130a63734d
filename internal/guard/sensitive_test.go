package guard

import (
	"slices"
	"testing"
)

func TestKey(t *testing.T) {
	for _, name := range []string{
		"password", "PASSWORD", "pass", "passwd", "pwd", "passphrase", "password2", "mysql-password", "PGPASSWORD",
		"secret", "clientSecret", "token", "csi.storage.k8s.io/serviceAccount.tokens", "access_token", "key", "apiKey", "accountkey", "auth_key", "private-key",
		"cred", "credential", "credentials", "sas", "signature", "akId", "accessKeyId",
	} {
		if !SensitiveKey(name) {
			t.Errorf("%s is shown", name)
		}
	}
	for _, name := range []string{
		"", "2", "user", "username", "uid", "vers", "sec", "port", "addr", "nopass", "noatime", "discard", "commit", "data", "size", "keyring_path",
		"passwd_file", "secretfile", "context", "errors", "nfsvers", "x-systemd.requires", "cache", "access",
	} {
		if SensitiveKey(name) {
			t.Errorf("%s is masked", name)
		}
	}
}

func TestMaskOptions(t *testing.T) {
	in := []string{"ro", "username=u", "password=a=b,c", "PASS=x", "key=", "password", `secret="q"`, "secretfile=/proc/1/fd/2"}
	given := slices.Clone(in)
	want := []string{"ro", "username=u", "password=[redacted]", "PASS=[redacted]", "key=[redacted]", "password", "secret=[redacted]", "secretfile=/proc/1/fd/2"}
	if got := MaskOptions(in); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if !slices.Equal(in, given) {
		t.Errorf("the argument was changed to %q", in)
	}
	if got := MaskOptions(nil); len(got) != 0 {
		t.Errorf("%q of nothing", got)
	}
}
