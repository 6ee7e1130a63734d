package volstate_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flex2csi/flex2csi/internal/guard"
	"github.com/flex2csi/flex2csi/internal/volstate"
)

// secretive is a record with a canary everywhere that a secret may be.
func secretive() *volstate.Record {
	return &volstate.Record{
		Driver: "d", Handle: "h", Stage: volstate.Done,
		Context:        map[string]string{"share": "//server/x", "accountKey": "canary1", "source": "https://me:canary2@server/"},
		MountFlags:     []string{"noatime", "password=canary3", "opt=a,token=canary4"},
		PublishContext: map[string]string{"device": "/dev/sdb", "chapPassword": "canary5"},
		Targets:        map[string]*volstate.Target{"/dir": {Publish: volstate.Done, LastError: "secret=canary6"}},
		LastError:      `mount -o password=canary7 failed`,
	}
}

// TestNoSecretInAFile: neither in the record nor in the version before it, and
// who has the record keeps what it needs.
func TestNoSecretInAFile(t *testing.T) {
	dir := t.TempDir()
	store, err := volstate.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	r := secretive()
	for range 2 {
		if err := store.Put(r); err != nil {
			t.Fatal(err)
		}
	}
	files := names(t, dir)
	if len(files) != 2 {
		t.Errorf("files are %q, want a record and the version before", files)
	}
	for _, name := range files {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "canary") {
			t.Errorf("%s has a secret:\n%s", name, text)
		}
		for _, want := range []string{"//server/x", "/dev/sdb", "noatime"} {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s lacks %s:\n%s", name, want, text)
			}
		}
	}
	if diff := cmp.Diff(secretive().Context, r.Context) + cmp.Diff(secretive().MountFlags, r.MountFlags) + cmp.Diff(secretive().PublishContext, r.PublishContext); diff != "" || r.Incomplete() || r.PublishContextIncomplete() {
		t.Errorf("writing changed the record: %s", diff)
	}
}

// TestComplete: what a file does not hold comes back from a call that agrees in
// all that it does hold.
func TestComplete(t *testing.T) {
	dir := t.TempDir()
	store, err := volstate.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Put(secretive()); err != nil {
		t.Fatal(err)
	}
	read := func() *volstate.Record {
		records, _, err := volstate.Peek(dir)
		if err != nil || len(records) != 1 {
			t.Fatal(records, err)
		}
		return records[0]
	}
	r := read()
	if !r.Incomplete() || !r.PublishContextIncomplete() {
		t.Errorf("%+v is taken for complete", r)
	}
	if diff := cmp.Diff([]string{"noatime"}, r.KnownFlags()); diff != "" {
		t.Errorf("known flags: %s", diff)
	}
	call := secretive()
	r.Complete(call.Context, call.MountFlags)
	if diff := cmp.Diff(call.Context, r.Context) + cmp.Diff(call.MountFlags, r.MountFlags); diff != "" || r.Incomplete() {
		t.Errorf("after a call: %s", diff)
	}
	for name, change := range map[string]func(*volstate.Record){
		"another value":    func(r *volstate.Record) { r.Context["share"] = "//other/x" },
		"another flag":     func(r *volstate.Record) { r.MountFlags[0] = "atime" },
		"one flag less":    func(r *volstate.Record) { r.MountFlags = r.MountFlags[1:] },
		"a value more":     func(r *volstate.Record) { r.Context["more"] = "1" },
		"a secret missing": func(r *volstate.Record) { delete(r.Context, "accountKey") },
	} {
		call := secretive()
		change(call)
		r := read()
		r.Complete(call.Context, call.MountFlags)
		if !r.Incomplete() {
			t.Errorf("%s: taken from a call that does not agree", name)
		}
	}
}

// FuzzWithhold: for any options of a volume, no file has a value with a name that says
// it is secret, and the record that is read back says that it lacks it.
func FuzzWithhold(f *testing.F) {
	f.Add("password", "", "x")
	f.Add("csi.storage.k8s.io/serviceAccount.tokens", `{"a":"`, `"}`)
	f.Add("apiKey", "a,b=", "\n\x00é\"")
	f.Fuzz(func(t *testing.T, name, before, after string) {
		if !guard.SensitiveKey(name) || strings.Contains(name, "=") {
			t.Skip()
		}
		const canary = "cAnArY"
		value := before + canary + after
		dir := t.TempDir()
		store, err := volstate.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		r := &volstate.Record{
			Driver: "d", Handle: "h", Stage: volstate.Done,
			Context: map[string]string{name: value}, PublishContext: map[string]string{name: value}, MountFlags: []string{name + "=" + value},
		}
		if err := store.Put(r); err != nil {
			t.Fatal(err)
		}
		for _, file := range names(t, dir) {
			if text, err := os.ReadFile(filepath.Join(dir, file)); err != nil || strings.Contains(string(text), canary) {
				t.Errorf("%s, %v:\n%s", file, err, text)
			}
		}
		back, _, err := volstate.Peek(dir)
		if err != nil || len(back) != 1 || !back[0].Incomplete() || !back[0].PublishContextIncomplete() || len(back[0].KnownFlags()) != 0 {
			t.Errorf("read back: %+v, %v", back, err)
		}
	})
}
