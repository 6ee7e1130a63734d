package flex_test

import (
	"encoding/json"
	"path"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/flex2csi/flex2csi/pkg/flex"
)

// FuzzParseCall: what is accepted is safe to use, and the answer to anything
// can be read. The arguments are separated by NUL, which argv cannot hold.
func FuzzParseCall(f *testing.F) {
	for _, command := range flex.Commands() {
		f.Add(strings.Join(arguments(command), "\x00"))
	}
	f.Fuzz(func(t *testing.T, joined string) {
		args := strings.Split(joined, "\x00")
		var got flex.Call
		status := flex.Run(t.Context(), working(&got), args)
		answer := kubeletReads(t, status.Encode())
		call, err := flex.ParseCall(args)
		if err != nil {
			if answer.Status == "Success" || answer.Message == "" || len(err.Error()) > 2000 {
				t.Fatalf("%v is answered %+v", err, answer)
			}
			return
		}
		if answer.Status != "Success" {
			t.Fatalf("a good call is answered %+v", answer)
		}
		if call.Dir != "" && (!path.IsAbs(call.Dir) || path.Clean(call.Dir) != call.Dir || strings.ContainsAny(call.Dir, "\n\x00")) {
			t.Errorf("accepted the directory %q", call.Dir)
		}
		for _, name := range []string{call.VolumeName, call.NodeName, call.Options.PodUID} {
			if strings.ContainsAny(name, "/\n\x00") || name == ".." {
				t.Errorf("accepted the name %q", name)
			}
		}
		if call.NewSize < 0 || call.OldSize < 0 {
			t.Errorf("accepted the sizes %d, %d", call.NewSize, call.OldSize)
		}
	})
}

// FuzzParseOptions: whatever encoding/json takes for a map of strings is
// accepted with the same values, but for Kubernetes' own keys, which may be
// refused; nothing else is; and it survives the way back.
func FuzzParseOptions(f *testing.F) {
	f.Add(fullJSON)
	f.Add(bareJSON)
	f.Add(secretJSON)
	f.Fuzz(func(t *testing.T, argument string) {
		o, err := flex.ParseOptions(argument)
		var values map[string]string
		jsonErr := json.Unmarshal([]byte(argument), &values)
		if err != nil {
			return
		}
		if jsonErr != nil {
			t.Fatalf("accepted what encoding/json refuses: %v", jsonErr)
		}
		for key, value := range values {
			if !strings.HasPrefix(key, "kubernetes.io/") && o.User[key] != value {
				t.Errorf("option %q is %q, want %q", key, o.User[key], value)
			}
		}
		again, err := o.MarshalArgument()
		if err != nil {
			t.Fatal(err)
		}
		o2, err := flex.ParseOptions(again)
		if err != nil {
			t.Fatalf("cannot read back %s: %v", again, err)
		}
		if diff := cmp.Diff(o, o2); diff != "" {
			t.Errorf("changed on the way back:\n%s", diff)
		}
	})
}

// FuzzRedact: no secret of four bytes or more survives in any encoding, and
// redacting twice changes nothing.
func FuzzRedact(f *testing.F) {
	f.Add("hunter2", "swordfish", "mount: ", " at host:/x")
	f.Add("a\\\"b", "%41%", "\\", "\"")
	f.Add("redacted", "dact", "[", "]")
	f.Fuzz(func(t *testing.T, secret, other, before, after string) {
		trimmed := strings.TrimSpace(secret)
		if len(trimmed) < 4 || len(secret)+len(other) > 200 {
			return
		}
		r := redactorFor(secret, other)
		for name, encode := range encodings() {
			encoded := encode(secret)
			got := r.Redact(before + encoded + after)
			if strings.Contains(got, encoded) || strings.Contains(got, trimmed) {
				t.Errorf("%s of %q survives in %q", name, secret, got)
			}
		}
	})
}

// FuzzEncode: any status is one object of valid UTF-8 with a known status, and
// a success is given unharmed or not at all.
func FuzzEncode(f *testing.F) {
	f.Add("Success", "", "/dev/sda", "vol", true)
	f.Add("Failure", "no\nway \xff", "", "", false)
	f.Add("", "", "", "", false)
	f.Fuzz(func(t *testing.T, status, message, device, volume string, attached bool) {
		s := flex.DriverStatus{Status: flex.Status(status), Message: message, Device: device, VolumeName: volume, Attached: &attached}
		encoded := s.Encode()
		got := kubeletReads(t, encoded)
		if !utf8.Valid(encoded) || strings.ContainsAny(got.Message, "\n\x00") || len(got.Message) > 1024 {
			t.Errorf("bad text: %q", encoded)
		}
		switch got.Status {
		case "Success", "Not supported":
			if got.Status != status || got.Device != device || got.VolumeName != volume || got.Attached != attached {
				t.Errorf("changed to %+v", got)
			}
		case "Failure":
			if got.Message == "" {
				t.Error("a failure without a reason")
			}
		default:
			t.Errorf("status %q", got.Status)
		}
	})
}
