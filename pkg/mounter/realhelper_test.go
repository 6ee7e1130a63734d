package mounter_test

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/flex2csi/flex2csi/pkg/mounter"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// The mount.cifs of cifs-utils drops its capabilities before it opens the file of the
// credentials, and so failed for each volume with a Secret: "error 13 (Permission denied)
// opening credential file /proc/PID/fd/N" (storage.md, fault 1). The test needs no
// kernel with cifs: strace shows what the program hands to it.
func TestRealCIFSReadsCredentials(t *testing.T) {
	testenv.Need(t, "root", "mount", "prog:mount", "prog:mount.cifs", "prog:strace")
	for title, password := range map[string]string{
		"plain":           "hunter2",
		"every character": `p,a"s's w%=\rd$`,
		"blanks around":   "  hunter2 ",
		"UTF-8":           "pässwörd-密码",
	} {
		t.Run(title, func(t *testing.T) {
			programs := t.TempDir()
			trace := programs + "/trace"
			script := "#!/bin/sh\nexec strace -f -o " + trace + " -xx -s 4096 -e trace=execve,mount /bin/mount \"$@\"\n"
			if err := os.WriteFile(programs+"/mount", []byte(script), 0o755); err != nil {
				t.Fatal(err)
			}
			m := mounter.Mounter{Programs: programs}
			r := mounter.Remote{
				Source: "//127.0.0.1/Team Data/Ümläut", FSType: "cifs", Options: []string{"ip=127.0.0.1", "port=1"},
				Credentials: map[string][]byte{"credentials": []byte("username=anna\npassword=" + password + "\ndomain=D\n")},
			}
			err := m.MountRemote(t.Context(), r, newTarget(t))
			requireError(t, err, nil, "mount error(") // of the kernel: it has no cifs, or the port no server
			calls := unhex(mustRead(t, trace))
			for _, want := range []string{"user=anna", "domain=D", ",pass=" + strings.ReplaceAll(password, ",", ",,") + ",", `\\127.0.0.1\Team Data`} {
				if !strings.Contains(calls, want) && !strings.Contains(calls, strings.TrimSuffix(want, ",")+`"`) {
					t.Errorf("%q does not reach the kernel:\n%s", want, calls)
				}
			}
			for line := range strings.Lines(calls) {
				if strings.Contains(line, "execve(") && strings.Contains(line, password) {
					t.Errorf("the password is an argument: %s", line)
				}
			}
		})
	}
}

// unhex undoes strace -xx.
func unhex(s string) string {
	return regexp.MustCompile(`\\x[0-9a-f]{2}`).ReplaceAllStringFunc(s, func(x string) string {
		n, _ := strconv.ParseUint(x[2:], 16, 8)
		return string([]byte{byte(n)})
	})
}
