package journal

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// writerDir makes the test binary the process that is killed.
const writerDir = "FLEX2CSI_TEST_JOURNAL"

func TestMain(m *testing.M) {
	if dir := os.Getenv(writerDir); dir != "" {
		writeForEver(dir)
	}
	if os.Getenv(tell) != "" {
		tellID()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// writeForEver saves copies, and says of each when it is saved.
func writeForEver(dir string) {
	d := directory(dir)
	r, err := loadCopy(d, "pv-1")
	if err != nil {
		panic(err)
	}
	if r == nil {
		r = record("pv-1")
	}
	for {
		r.Trouble = strings.Repeat("x", int(r.Sequence%1500))
		if err := saveCopy(d, r); err != nil {
			panic(err)
		}
		fmt.Println(r.Sequence)
	}
}

// saveCopy saves a copy alone.
func saveCopy(d directory, r *Record) error {
	n := r.next(time.Now())
	data, err := encode(n)
	if err == nil {
		err = d.save(n.Volume, New(nil, "flex2csi", "").configMap(n, data))
	}
	*r = *n
	return err
}

// loadCopy returns what the copy of a volume without a ConfigMap says; nil if there is none.
func loadCopy(d directory, volume string) (*Record, error) {
	name, err := fileName(volume)
	if err != nil {
		return nil, err
	}
	l, err := d.lostRecord(name)
	if l == nil {
		return nil, err
	}
	return l.Record, err
}

const flexVolume = `{"kind":"PersistentVolume","apiVersion":"v1","metadata":{"name":"pv-1","uid":"u","annotations":{"a":"<&>  \u2028","n":"1"}},"spec":{"capacity":{"storage":"1Gi"},"new":12345678901234567890,"flexVolume":{"driver":"example.com/disk"}}}`

func record(volume string) *Record {
	return &Record{
		Volume: volume, Claim: "default/data", ClaimUID: "c", Mode: Live, Direction: ToCSI, Stage: BackedUp,
		Flex: json.RawMessage(flexVolume), CSI: json.RawMessage(`{"spec":{"csi":{}}}`),
		Pods:  []Pod{{Name: "default/web-0", UID: "p", Node: "node-1", Owner: "StatefulSet/web"}},
		Times: map[Stage]time.Time{BackedUp: time.Date(2026, 11, 22, 9, 0, 0, 5, time.UTC)},
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestCopies: what is saved is read again, the objects in it byte for byte.
func TestCopies(t *testing.T) {
	d := directory(filepath.Join(t.TempDir(), "new", "journal"))
	for _, volume := range []string{"pv-1", "pv-1.json", strings.Repeat("long.", 50) + "a", strings.Repeat("long.", 50) + "b"} {
		if r, err := loadCopy(d, volume); r != nil || err != nil {
			t.Fatalf("%v, %v", r, err)
		}
		r := record(volume)
		check(t, saveCopy(d, r))
		check(t, saveCopy(d, r))
		got, err := loadCopy(d, volume)
		check(t, err)
		if diff := cmp.Diff(r, got); diff != "" || r.Sequence != 2 || r.Begun.IsZero() {
			t.Error(diff, r)
		}
		if string(got.Flex) != flexVolume {
			t.Errorf("the object is not what it was: %s", got.Flex)
		}
	}
	all, unread := d.lost(map[string]bool{ConfigMapName("pv-1"): true, ConfigMapName(strings.Repeat("long.", 50) + "a"): true})
	if len(all) != 2 || len(unread) > 0 {
		t.Errorf("%d records, %v", len(all), unread)
	}
	onlyOwner(t, string(d))
	for _, volume := range []string{"", "../x", ".x", "a/b"} {
		if err := saveCopy(d, record(volume)); err == nil {
			t.Errorf("%q was saved", volume)
		}
	}
}

func onlyOwner(t *testing.T, dir string) {
	t.Helper()
	check(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	}))
}

// TestTorn: a copy that was cut off anywhere, or is full of zeros, is never taken for one,
// and can be written again.
func TestTorn(t *testing.T) {
	d := directory(t.TempDir())
	r := record("pv-1")
	check(t, saveCopy(d, r))
	check(t, saveCopy(d, record("pv-2")))
	path := filepath.Join(string(d), "pv-1.json")
	whole, err := os.ReadFile(path)
	check(t, err)
	torn := func(data []byte) {
		t.Helper()
		check(t, os.WriteFile(path, data, 0o600))
		if got, err := loadCopy(d, "pv-1"); !errors.Is(err, ErrUnreadable) {
			t.Fatalf("%d bytes of %d: %v, %v", len(data), len(whole), got, err)
		}
	}
	for n := range len(whole) - 1 { // the last is the end of the line
		torn(whole[:n])
		torn(append(whole[:n:n], make([]byte, len(whole)-n)...))
	}
	all, unread := d.lost(nil)
	if err := errors.Join(unread...); len(all) != 1 || !errors.Is(err, ErrUnreadable) || !strings.Contains(err.Error(), path) {
		t.Errorf("%v, %v", all, err)
	}
	check(t, saveCopy(d, r))

	check(t, os.WriteFile(path, []byte(strings.Replace(string(whole), "v1alpha1", "v2", 1)), 0o600))
	if r, err := loadCopy(d, "pv-1"); err == nil || !strings.Contains(err.Error(), "the release of flex2csi that has written it") {
		t.Errorf("what another release has written: %v, %v", r, err)
	}
}

// TestKilled: whenever the writer is killed there is a record, and none that was
// saved is lost.
func TestKilled(t *testing.T) {
	d := directory(t.TempDir())
	var last int64
	for round := range 40 {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), writerDir+"="+string(d))
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		check(t, err)
		check(t, cmd.Start())
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			last, err = strconv.ParseInt(lines.Text(), 10, 64)
			check(t, err)
			if n == round%4 { // and then anywhere
				time.AfterFunc(time.Duration(round)*337*time.Microsecond, func() { _ = cmd.Process.Kill() })
			}
		}
		_ = cmd.Wait()
		r, err := loadCopy(d, "pv-1")
		check(t, err)
		if r == nil || r.Sequence < last || r.Sequence > last+1 {
			t.Fatalf("round %d: %d was saved, and there is %+v", round, last, r)
		}
	}
	if last < 80 {
		t.Errorf("only %d records were written", last)
	}
	if all, unread := d.lost(nil); len(all) != 1 || len(unread) > 0 {
		t.Errorf("%d records, %v: what is left of a kill counts as one", len(all), unread)
	}
}

// TestBackUp: objects are kept as they are, those of an earlier migration, too; a Secret
// never is.
func TestBackUp(t *testing.T) {
	d := directory(filepath.Join(t.TempDir(), "journal"))
	volume := []byte(flexVolume + "\n")
	claim := []byte(`{"kind":"PersistentVolumeClaim","apiVersion":"v1","metadata":{"name":"data"}}`)
	pod := []byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web-0"}}`)
	for range 2 {
		check(t, d.backUp("pv-1", [][]byte{volume, claim, pod}))
	}
	later := []byte(strings.Replace(flexVolume, `"uid":"u"`, `"uid":"v"`, 1))
	for range 2 {
		check(t, d.backUp("pv-1", [][]byte{later}))
	}
	files, err := filepath.Glob(filepath.Join(string(d), "backup", "pv-1", "*"))
	check(t, err)
	for i := range files {
		files[i] = filepath.Base(files[i])
	}
	want := []string{"claim.json", "persistentvolume-2.json", "persistentvolume.json", "pod-web-0.json"}
	if diff := cmp.Diff(want, files); diff != "" {
		t.Error(diff)
	}
	for name, want := range map[string]string{"persistentvolume.json": string(volume), "persistentvolume-2.json": string(later)} {
		got, err := os.ReadFile(filepath.Join(string(d), "backup", "pv-1", name))
		check(t, err)
		if string(got) != want {
			t.Errorf("%s is\n%s", name, got)
		}
	}
	onlyOwner(t, string(d))

	secret := []byte(`{"kind":"Secret","apiVersion":"v1","metadata":{"name":"key"},"data":{"password":"aHVudGVyMg=="}}`)
	list := []byte(`{"kind":"SecretList","apiVersion":"v1","metadata":{},"items":[` + string(secret) + `]}`)
	for _, object := range [][]byte{secret, list} {
		err = d.backUp("pv-1", [][]byte{object})
		if err == nil || strings.Contains(err.Error(), "aHVudGVyMg") {
			t.Errorf("a Secret: %v", err)
		}
	}
	check(t, filepath.WalkDir(string(d), func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if strings.Contains(string(data), "aHVudGVyMg") {
			t.Errorf("a secret is in %s", path)
		}
		return err
	}))
}
