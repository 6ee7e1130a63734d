package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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

func module(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range sources() {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
}

func TestRun(t *testing.T) {
	module(t)
	for _, tt := range []struct {
		name, require string
		args          []string
		want          string // what total prints
		wantErr       bool
		wantOut       string
	}{
		{name: "pass", args: []string{"run", "./ok"}, want: "3 passed, 0 failed"},
		{name: "fail", args: []string{"run", "./ok", "./bad"}, want: "4 passed, 1 failed", wantErr: true, wantOut: "it broke"},
		{name: "skip", args: []string{"run", "./skip"}, want: "1 passed, 0 failed, 1 skipped", wantOut: "needs luck"},
		{name: "skip forbidden", require: "all", args: []string{"run", "./skip"}, want: "1 passed, 1 failed", wantErr: true, wantOut: "needs luck"},
		{name: "skip not counted", require: "all", args: []string{"-skips-are-fine", "run", "./skip"}, want: "1 passed, 0 failed"},
		{name: "skip of another allowed", require: "loop", args: []string{"run", "./skip"}, want: "1 passed, 0 failed, 1 skipped"},
		{name: "build", args: []string{"run", "./build", "./ok"}, want: "3 passed, 1 failed", wantErr: true, wantOut: "undefined: undefined"},
		{name: "exit", args: []string{"run", "./exit"}, want: "0 passed, 1 failed", wantErr: true},
		{name: "panic", args: []string{"run", "./panic"}, want: "0 passed, 1 failed", wantErr: true, wantOut: "ouch"},
		{name: "nothing", args: []string{"run", "./none"}, want: "0 passed, 1 failed", wantErr: true},
		{name: "no such package", args: []string{"run", "./absent"}, want: "0 passed, 1 failed", wantErr: true, wantOut: "absent"},
		{name: "bad flag", args: []string{"run", "-mod=bogus", "./ok"}, want: "0 passed, 1 failed", wantErr: true, wantOut: "bogus"},
		{name: "fuzz", args: []string{"fuzz", "-fuzztime=10x"}, want: "1 passed, 0 failed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("FLEX_TEST_REQUIRE", tt.require)
			t.Setenv("V", "")
			file := filepath.Join(t.TempDir(), "results")
			var out bytes.Buffer
			err := run(t.Context(), append([]string{"-results", file}, tt.args...), &out)
			if (err != nil) != tt.wantErr {
				t.Errorf("error %v, want one: %v", err, tt.wantErr)
			}
			if !strings.Contains(out.String(), tt.wantOut) {
				t.Errorf("output lacks %q:\n%s", tt.wantOut, out.String())
			}
			var sum bytes.Buffer
			if err := run(t.Context(), []string{"-results", file, "total"}, &sum); (err != nil) != tt.wantErr {
				t.Errorf("total: error %v, want one: %v", err, tt.wantErr)
			}
			if diff := cmp.Diff(tt.want+"\n", sum.String()); diff != "" {
				t.Errorf("total (-want +got):\n%s", diff)
			}
			if t.Failed() {
				t.Log(out.String())
			}
		})
	}
}

// A run that is interrupted ends at once, with the tests it has started.
func TestRunInterrupted(t *testing.T) {
	module(t)
	t.Setenv("V", "1") // show output at once
	ctx, cancel := context.WithCancel(t.Context())
	out := &trigger{text: "endless", do: cancel}
	if err := run(ctx, []string{"-results", filepath.Join(t.TempDir(), "results"), "run", "-v", "./endless"}, out); err == nil {
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
	const clean = `{"Step":"a","Passed":2}` + "\n" + `{"Step":"b","Passed":3,"Skipped":1}` + "\n"
	for _, tt := range []struct {
		name, file, status, want string
		wantErr                  bool
	}{
		{name: "steps add up", file: clean, status: "0", want: "5 passed, 0 failed, 1 skipped\n"},
		{name: "a failure elsewhere counts", file: clean, status: "2", want: "5 passed, 1 failed, 1 skipped\n", wantErr: true},
		{name: "a failed test counts once", file: `{"Failed":2,"Passed":1}` + "\n", status: "2", want: "1 passed, 2 failed\n", wantErr: true},
		{name: "nothing ran", file: "", status: "0", want: "0 passed, 1 failed\n", wantErr: true},
		{name: "torn file", file: clean + `{"Pas`, status: "0", want: "", wantErr: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "results")
			if err := os.WriteFile(file, []byte(tt.file), 0o600); err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			err := run(t.Context(), []string{"-results", file, "-status", tt.status, "total"}, &out)
			if (err != nil) != tt.wantErr {
				t.Errorf("error %v, want one: %v", err, tt.wantErr)
			}
			if diff := cmp.Diff(tt.want, out.String()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
