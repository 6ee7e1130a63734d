package hack_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flex2csi/flex2csi/test/testenv"
)

// sources is a module with every kind of package that go test can meet.
func sources() map[string]string {
	const head = "package p\nimport \"testing\"\n"
	return map[string]string{
		"go.mod":            "module example.com/m\ngo 1.26\n",
		"ok/a_test.go":      head + "func TestA(t *testing.T) { t.Run(\"sub\", func(t *testing.T) {}) }\nfunc FuzzA(f *testing.F) { f.Fuzz(func(t *testing.T, s string) {}) }\n",
		"bad/a_test.go":     head + "func TestOK(t *testing.T) {}\nfunc TestBad(t *testing.T) { t.Error(\"it broke\") }\n",
		"skip/a_test.go":    head + "func TestOK(t *testing.T) {}\nfunc TestSkip(t *testing.T) { t.Skip(\"needs luck\") }\n",
		"build/a_test.go":   head + "func TestNo(t *testing.T) { undefined() }\n",
		"exit/a_test.go":    head + "import \"os\"\nfunc TestMain(m *testing.M) { os.Exit(3) }\n",
		"panic/a_test.go":   head + "func TestPanic(t *testing.T) { panic(\"ouch\") }\n",
		"endless/a_test.go": head + "import \"time\"\nfunc TestA(t *testing.T) { println(\"endless\"); time.Sleep(time.Hour) }\n",
		"none/a.go":         "package none\n",
	}
}

// bench runs count in a module of sources, with results of its own.
type bench struct{ count, module, results string }

func newBench(t *testing.T) *bench {
	t.Helper()
	testenv.Need(t, "prog:gotestsum")
	count, err := filepath.Abs("count")
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{count: count, module: t.TempDir(), results: filepath.Join(t.TempDir(), "results")}
	for name, text := range sources() {
		name = filepath.Join(b.module, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func (b *bench) command(t *testing.T, require string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), b.count, args...)
	cmd.Dir = b.module
	cmd.Env = append(os.Environ(), "RESULTS="+b.results, "FLEX_TEST_REQUIRE="+require, "GOTESTSUM_FORMAT=")
	return cmd
}

func TestRun(t *testing.T) {
	for _, tt := range []struct {
		name, require string
		args          []string
		want          string // what total prints
		wantErr       bool
		wantOut       string
	}{
		{name: "pass", args: []string{"./ok"}, want: "3 passed, 0 failed"},
		{name: "fail", args: []string{"./ok", "./bad"}, want: "4 passed, 1 failed", wantErr: true, wantOut: "it broke"},
		{name: "skip", args: []string{"./skip"}, want: "1 passed, 0 failed, 1 skipped", wantOut: "needs luck"},
		{name: "skip forbidden", require: "all", args: []string{"./skip"}, want: "1 passed, 1 failed", wantErr: true, wantOut: "needs luck"},
		{name: "skip of another allowed", require: "loop", args: []string{"./skip"}, want: "1 passed, 0 failed, 1 skipped"},
		{name: "build", args: []string{"./build", "./ok"}, want: "3 passed, 1 failed", wantErr: true, wantOut: "undefined: undefined"},
		{name: "exit", args: []string{"./exit"}, want: "0 passed, 1 failed", wantErr: true},
		{name: "panic", args: []string{"./panic"}, want: "0 passed, 1 failed", wantErr: true, wantOut: "ouch"},
		{name: "nothing", args: []string{"./none"}, want: "0 passed, 1 failed", wantErr: true, wantOut: "no test ran"},
		{name: "no such package", args: []string{"./absent"}, want: "0 passed, 1 failed", wantErr: true, wantOut: "absent"},
		{name: "bad flag", args: []string{"-mod=bogus", "./ok"}, want: "0 passed, 1 failed", wantErr: true, wantOut: "bogus"},
		{name: "fuzz", args: []string{"-run=^$", "-fuzz=^FuzzA$", "-fuzztime=10x", "./ok"}, want: "1 passed, 0 failed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t)
			out, err := b.command(t, tt.require, append([]string{"run", "step"}, tt.args...)...).CombinedOutput()
			if (err != nil) != tt.wantErr {
				t.Errorf("error %v, want one: %v", err, tt.wantErr)
			}
			if !strings.Contains(string(out), tt.wantOut) {
				t.Errorf("output lacks %q", tt.wantOut)
			}
			sum, err := b.command(t, "", "total").Output()
			if (err != nil) != tt.wantErr {
				t.Errorf("total: error %v, want one: %v", err, tt.wantErr)
			}
			if diff := cmp.Diff(tt.want+"\n", string(sum)); diff != "" {
				t.Errorf("total (-want +got):\n%s", diff)
			}
			if t.Failed() {
				t.Logf("%s", out)
			}
		})
	}
}

// A run that is interrupted ends at once, with the tests it has started. The terminal
// interrupts a whole process group.
func TestRunInterrupted(t *testing.T) {
	b := newBench(t)
	cmd := b.command(t, "", "run", "step", "-v", "./endless")
	cmd.Env = append(cmd.Env, "GOTESTSUM_FORMAT=standard-verbose") // shows output at once
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Stdout = &trigger{text: "endless", do: func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }}
	cmd.WaitDelay = time.Minute
	if err := cmd.Run(); err == nil {
		t.Error("no error")
	}
}

// trigger calls do when text is written to it.
type trigger struct {
	text string
	do   func()
}

func (w *trigger) Write(p []byte) (int, error) {
	if strings.Contains(string(p), w.text) {
		w.do()
	}
	return len(p), nil
}

func TestTotal(t *testing.T) {
	const clean = "a 2 0 0\nb 3 0 1\n"
	for _, tt := range []struct {
		name, file, status, want string
		wantErr                  bool
	}{
		{name: "steps add up", file: clean, status: "0", want: "5 passed, 0 failed, 1 skipped\n"},
		{name: "a failure elsewhere counts", file: clean, status: "2", want: "5 passed, 1 failed, 1 skipped\n", wantErr: true},
		{name: "a failed test counts once", file: "a 1 2 0\n", status: "2", want: "1 passed, 2 failed\n", wantErr: true},
		{name: "nothing ran", file: "", status: "0", want: "0 passed, 1 failed\n", wantErr: true},
		{name: "torn file", file: clean + "c 1", status: "0", want: "6 passed, 1 failed, 1 skipped\n", wantErr: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t)
			if err := os.WriteFile(b.results, []byte(tt.file), 0o600); err != nil {
				t.Fatal(err)
			}
			out, err := b.command(t, "", "total", tt.status).Output()
			if (err != nil) != tt.wantErr {
				t.Errorf("error %v, want one: %v", err, tt.wantErr)
			}
			if diff := cmp.Diff(tt.want, string(out)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
