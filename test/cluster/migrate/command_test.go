package migrate_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/bridgestatus"
	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/test/controlplane"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// TestCommands: the real program migrates, is interrupted, goes on, and goes
// back.
func TestCommands(t *testing.T) {
	w := start(t)
	for _, test := range []struct {
		name string
		run  func(*world, *commands)
	}{
		{"Apply", testApply},
		{"Asked", testAsked},
		{"Interrupted", testInterrupted},
		{"OtherCluster", testOtherCluster},
		{"AnotherNamespace", testAnotherNamespace},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := w.with(t)
			dir := t.TempDir()
			c := &commands{w: w, dir: filepath.Join(dir, "journal"), config: filepath.Join(dir, "config.yaml")}
			w.check(os.WriteFile(c.config, []byte(configuration), 0o600))
			test.run(w, c)
		})
	}
}

// commands are those of one operator.
type commands struct {
	w           *world
	dir, config string
}

// outcome is what came of a volume, as programs read it.
type outcome struct {
	Name, Outcome, Stage, Why string
	Requests                  int
	LostSeconds               float64
}

func (c *commands) args(args []string) []string {
	args = append([]string{args[0], "--journal", c.dir}, args[1:]...)
	if args[0] != "status" {
		args = append(args, "--config", c.config)
	}
	return args
}

// run runs one, and wants an exit status.
func (c *commands) run(status int, args ...string) (out, errs string) {
	c.w.t.Helper()
	return c.w.migrateCommand(status, c.args(args)...)
}

// results runs one that tells what came of each volume.
func (c *commands) results(status int, args ...string) (all []outcome, errs string) {
	c.w.t.Helper()
	out, errs := c.run(status, append(args, "-o", "json")...)
	var document struct {
		Kind    string
		Volumes []outcome
	}
	if err := json.Unmarshal([]byte(out), &document); err != nil || document.Kind != "MigrationResult" {
		c.w.t.Fatalf("%v\n%s\n%s", err, out, errs)
	}
	return document.Volumes, errs
}

func (w *world) contains(text string, all ...string) {
	w.t.Helper()
	for _, want := range all {
		if !strings.Contains(text, want) {
			w.t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// testAnotherNamespace: plan, apply, status and rollback wanted rights in namespace flex2csi,
// the journal and the Lease, wherever flex2csi was. This user has them in storage alone.
func testAnotherNamespace(w *world, c *commands) {
	file := filepath.Join(w.t.TempDir(), "role.yaml")
	role, err := os.ReadFile(roleFile("migrate-role.yaml"))
	w.check(err)
	w.check(os.WriteFile(file, []byte(strings.ReplaceAll(string(role), "namespace: flex2csi", "namespace: storage")), 0o600))
	w.Apply(file)
	w.ServiceAccount("storage", "migrator")
	rbac, meta, subjects := w.Admin().RbacV1(), metav1.ObjectMeta{Name: "storage"}, []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "storage", Name: "migrator"}}
	_, err = rbac.ClusterRoleBindings().Create(w.t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "flex2csi-migrate"}}, metav1.CreateOptions{})
	w.check(err)
	_, err = rbac.RoleBindings("storage").Create(w.t.Context(), &rbacv1.RoleBinding{ObjectMeta: meta, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "flex2csi-migrate"}}, metav1.CreateOptions{})
	w.check(err)
	user := w.Kubeconfig(w.ServiceAccountToken(w.Pod("storage", "migrator", "node-2", "migrator")))
	w.disk("co-elsewhere")
	claim := w.claim("co-elsewhere").UID
	in := func(args ...string) []string {
		return append(args, "--kubeconfig", user, "--flex2csi-namespace", "storage")
	}
	testenv.Eventually(w.t, "the roles hold", func() bool {
		out, _ := w.migrateCommand(0, in("plan", "co-elsewhere", "--config", c.config, "-o", "wide")...)
		return strings.Contains(out, "this user may do all")
	})
	if all, errs := c.results(0, in("apply", "co-elsewhere", "--yes")...); len(all) != 1 || all[0].Outcome != "Done" {
		w.t.Fatalf("%+v\n%s", all, errs)
	}
	w.isCSI("co-elsewhere", claim)
	out, _ := w.migrateCommand(0, in("status", "co-elsewhere")...)
	w.contains(out, "1 volumes are migrated")
	if _, err := w.Admin().CoordinationV1().Leases("storage").Get(w.t.Context(), migrate.LeaseName, metav1.GetOptions{}); err != nil {
		w.t.Errorf("the Lease is not there: %v", err)
	}
	if all, errs := c.results(0, in("rollback", "co-elsewhere", "--yes")...); len(all) != 1 || all[0].Outcome != "Done" {
		w.t.Errorf("%+v\n%s", all, errs)
	}
}

func testApply(w *world, c *commands) {
	w.disk("co-one")
	w.disk("co-two")
	w.disk("co-busy")
	w.pod("co-busy", "node-1", "co-busy") // without an owner: offline
	claim, was := w.claim("co-one").UID, w.volume("co-one")

	all, errs := c.results(0, "apply", "--driver", flexDriver, "--namespace", "default", "--yes", "--width", "2")
	byName := map[string]outcome{}
	for _, r := range all {
		byName[r.Name] = r
	}
	if byName["co-one"].Outcome != "Done" || byName["co-two"].Outcome != "Done" || byName["co-busy"].Outcome != "Left" || byName["co-one"].Requests == 0 || byName["co-one"].LostSeconds <= 0 {
		w.t.Errorf("%+v", all)
	}
	w.contains(errs, "Will be replaced now, under their pods if there are any (2): co-one, co-two", "Will be left as they are (1):\n  co-busy: only offline (--offline)", "co-one               migrated; the claim was Lost for")
	w.isCSI("co-one", claim)
	log, err := os.ReadFile(filepath.Join(c.dir, "log"))
	w.check(err)
	w.contains(string(log), "co-two               migrated")

	// What was named and cannot be done is not done; what was chosen and cannot be is only left.
	if all, errs := c.results(1, "apply", "co-busy", "--yes"); len(all) != 1 || all[0].Outcome != "Left" || !strings.Contains(errs, "There is nothing to do") || !strings.Contains(errs, "left as it was: co-busy") {
		w.t.Errorf("%+v\n%s", all, errs)
	}
	c.results(0, "apply", "--driver", flexDriver, "--namespace", "default", "--yes")
	// What is done already is nothing to do.
	c.results(0, "apply", "co-one", "--yes")
	if _, errs := c.results(0, "apply", "--driver", "example.com/file", "--yes"); !strings.Contains(errs, "No FlexVolume is selected") {
		w.t.Error(errs)
	}
	out, _ := c.run(0, "status")
	w.contains(out, "2 volumes are migrated, 0 taken back.", "FlexVolumes that are left: 1 of "+flexDriver)

	out, errs = c.run(0, "resume")
	if out != "" || !strings.Contains(errs, "Nothing is unfinished") {
		w.t.Errorf("%q\n%s", out, errs)
	}
	if all, errs := c.results(0, "rollback", "co-one", "--yes"); len(all) != 1 || all[0].Outcome != "Done" || !strings.Contains(errs, "co-one               taken back") {
		w.t.Errorf("%+v\n%s", all, errs)
	}
	w.isFlex(was, claim)
	out, _ = c.run(1, "rollback", "missing", "--yes")
	if out != "" {
		w.t.Error(out)
	}
}

// testAsked: a person types yes, and nothing else is taken for it.
func testAsked(w *world, c *commands) {
	w.disk("co-asked")
	claim := w.claim("co-asked").UID
	for answer, want := range map[string]string{"y\n": "not confirmed: nothing was changed", "\x04": "not confirmed"} {
		if text := c.terminal(1, answer, "apply", "co-asked"); !strings.Contains(text, want) || !strings.Contains(text, "Replace 1 FlexVolumes by CSI volumes in ") {
			w.t.Errorf("%q: %s", answer, text)
		}
		if w.volume("co-asked").Spec.FlexVolume == nil {
			w.t.Fatal("it was replaced")
		}
	}
	if _, err := os.Stat(c.dir); err == nil {
		w.t.Error("the journal has begun before the user has said yes")
	}
	text := c.terminal(0, "yes\n", "apply", "co-asked")
	w.contains(text, "1/1 done, 0 under way, 0 in trouble, ", "\x1b[K", "VOLUME ", "migrated")
	w.isCSI("co-asked", claim)
}

// terminal runs a command at a terminal, where a user types an answer.
func (c *commands) terminal(status int, answer string, args ...string) string {
	c.w.t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	c.w.check(err)
	defer person.Close()
	c.w.check(unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	c.w.check(err)
	program, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	c.w.check(err)
	command := c.command(args...)
	command.Stdin, command.Stdout, command.Stderr = program, program, program
	c.w.check(command.Start())
	c.w.check(program.Close())
	_, err = io.WriteString(person, answer)
	c.w.check(err)
	text, _ := io.ReadAll(person) // EIO: the program has ended
	if err := command.Wait(); command.ProcessState.ExitCode() != status {
		c.w.t.Fatalf("%q: %v\n%s", args, err, text)
	}
	return strings.ReplaceAll(string(text), "\r\n", "\n")
}

func (c *commands) command(args ...string) *exec.Cmd {
	command := exec.CommandContext(c.w.t.Context(), filepath.Join(os.Getenv("FLEX_PROGRAMS"), "flex2csi"), append([]string{"migrate"}, c.args(args)...)...)
	command.Env = append(os.Environ(), "KUBECONFIG="+c.w.Kubeconfig(controlplane.Admin), "TERM=xterm")
	return command
}

// A shared buffer is read while it is written.
type sharedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *sharedBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *sharedBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// testInterrupted: one operator at a time; the first Ctrl-C ends in good order,
// and resume goes on from there.
func testInterrupted(w *world, c *commands) {
	w.live("co-live")
	claim := w.claim("co-live").UID
	var out, errs sharedBuffer
	command := c.command("apply", "co-live", "--yes", "-o", "json")
	command.Stdout, command.Stderr = &out, &errs
	w.check(command.Start())
	testenv.Eventually(w.t, "it waits for the kubelet", func() bool { return strings.Contains(errs.String(), "has not mounted the volume") })

	other := &commands{w: w, dir: c.dir + "-other", config: c.config}
	w.disk("co-other")
	_, said := other.run(1, "apply", "co-other", "--yes")
	w.contains(said, "another operator has the Lease", "nothing was changed")
	if w.volume("co-other").Spec.FlexVolume == nil {
		w.t.Error("two at the same time")
	}
	status, _ := other.run(0, "status")
	w.contains(status, "under way", "migrates just now")

	w.check(command.Process.Signal(syscall.SIGINT))
	_ = command.Wait() // the status follows
	if command.ProcessState.ExitCode() != 1 {
		w.t.Errorf("%s\n%s", command.ProcessState, errs.String())
	}
	w.contains(errs.String(), "interrupted: no volume is begun any more", "co-live              INTERRUPTED", "interrupted: co-live. flex2csi migrate status shows how they are, resume goes on, rollback goes back")
	w.contains(out.String(), `"outcome": "Interrupted"`)
	w.becameCSI("co-live", string(claim))
	status, _ = other.run(0, "status") // from the journal in the cluster alone
	w.contains(status, "HALTED", "flex2csi migrate resume co-live goes on")
	_, said = other.run(0, "apply", "co-other", "--yes")
	w.contains(said, "note: the migration of co-live is not finished, and no process works on it")

	w.document("node-1", "co-live", func(v *bridgestatus.NodeVolume) { v.Pods[0].TakenOver = true })
	if all, errs := other.results(0, "resume"); len(all) != 1 || all[0].Outcome != "Done" || all[0].Stage != "Finished" {
		w.t.Errorf("%+v\n%s", all, errs)
	}
	w.isCSI("co-live", claim)
}

// becameCSI wants a volume to be a CSI volume of the claim, finished or not.
func (w *world) becameCSI(name, claim string) {
	w.t.Helper()
	if pv := w.volume(name); pv.Spec.CSI == nil || string(pv.Spec.ClaimRef.UID) != claim {
		w.t.Errorf("%+v", pv)
	}
}

// testOtherCluster: in another cluster a volume that is not there is not one that
// has to be created again.
func testOtherCluster(w *world, c *commands) {
	w.disk("co-here")
	c.results(0, "apply", "co-here", "--yes")
	file := filepath.Join(c.dir, "cluster")
	text, err := os.ReadFile(file)
	w.check(err)
	if !strings.Contains(string(text), `"uid":"`) {
		w.t.Errorf("%s", text)
	}
	w.check(os.WriteFile(file, []byte(`{"uid":"another","server":"elsewhere:6443"}`), 0o600))
	w.disk("co-there")
	for _, args := range [][]string{{"resume"}, {"rollback", "co-here", "--yes"}, {"apply", "co-there", "--yes"}} {
		_, errs := c.run(1, args...)
		w.contains(errs, "is the journal of another cluster (elsewhere:6443, not 127.0.0.1:", "nothing was changed")
	}
	_, errs := c.run(0, "status")
	w.contains(errs, "only the journal in the cluster was read")
	w.check(os.Remove(file))
	_, errs = c.run(1, "resume")
	w.contains(errs, "no file \"cluster\" that says of which cluster they are")
	if w.volume("co-here").Spec.CSI == nil || w.volume("co-there").Spec.FlexVolume == nil {
		w.t.Error("something was changed")
	}
}
