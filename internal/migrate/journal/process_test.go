package journal

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

const tell = "FLEX2CSI_TEST_TELL_ID"

// tellID prints the ID of this process, and waits for the end of its input.
func tellID() {
	id, err := ProcessID()
	fmt.Println(id, err)
	_, _ = os.Stdin.Read(make([]byte, 1))
}

// TestDead: a process is dead when it is, a zombie is, and no other one.
func TestDead(t *testing.T) {
	mine, err := ProcessID()
	if err != nil || ProcessDead(mine) {
		t.Fatalf("%q is dead, %v", mine, err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), tell+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	id, ok := strings.CutSuffix(line, " <nil>\n")
	if err != nil || !ok || ProcessDead(id) {
		t.Fatalf("%q lives, and is dead, %v", line, err)
	}
	fields := strings.Fields(id)
	for i, other := range []string{"another-boot", "pid:[1]"} {
		changed := append([]string{}, fields...)
		changed[i], changed[3] = other, "1"
		if id := strings.Join(changed, " "); ProcessDead(id) {
			t.Errorf("%q is of another place, and dead", id)
		}
	}
	fields[3] += "1"
	if !ProcessDead(strings.Join(fields, " ")) {
		t.Error("its pid is another one's now, and it is not dead")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for n := 0; !ProcessDead(id) && n < 1e6; n++ { // no process has waited for it yet
	}
	if !ProcessDead(id) {
		t.Error("a zombie is not dead")
	}
	_ = cmd.Wait()
	if !ProcessDead(id) {
		t.Error("it is not dead")
	}
	for _, id := range []string{"", "x", "a b c d"} {
		if ProcessDead(id) {
			t.Errorf("%q is dead", id)
		}
	}
}
