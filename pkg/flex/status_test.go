package flex_test

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/flex2csi/flex2csi/pkg/flex"
)

var update = flag.Bool("update", false, "write the golden files")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", "golden", name)
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

func TestEncodeGolden(t *testing.T) {
	capabilities := flex.DefaultCapabilities()
	statuses := []flex.DriverStatus{
		{Status: flex.StatusSuccess},
		{Status: flex.StatusSuccess, Capabilities: &capabilities},
		{Status: flex.StatusSuccess, Capabilities: &flex.Capabilities{}},
		{Status: flex.StatusSuccess, Capabilities: &flex.Capabilities{Attach: true, RequiresFSResize: true}},
		{Status: flex.StatusSuccess, Device: "/dev/disk/by-id/x"},
		{Status: flex.StatusSuccess, VolumeName: "pv1"},
		{Status: flex.StatusSuccess, Attached: new(true)},
		{Status: flex.StatusSuccess, Attached: new(false)},
		{Status: flex.StatusNotSupported, Message: "expandfs is not something that this driver does", Code: flex.CodeUnimplemented},
		flex.Failure(flex.Errorf(flex.CodeNotFound, `no such image "/a<b>&c"`)),
		{Status: flex.StatusFailure, Message: "two\nlines\tand a \x1b[1mcolour\x00\u2028\u0085end \n"},
		flex.Failure(errors.New("not\xff\xfetext")),
		flex.Failure(nil),
		{},
		{Status: "success"},
		{Status: flex.StatusFailure},
		{Status: flex.StatusSuccess, Device: "/dev/\xff"},
		{Status: flex.StatusSuccess, VolumeName: "\xff"},
		{Status: flex.StatusSuccess, Device: strings.Repeat("d", 5000)},
	}
	var all []byte
	for _, s := range statuses {
		encoded := s.Encode()
		kubeletReads(t, encoded)
		all = append(all, encoded...)
	}
	golden(t, "status.jsonl", all)
}

func TestEncodeCutsMessage(t *testing.T) {
	for _, unit := range []string{"a", "ä", "日", "😀", `"`, `\`, "\x01", "\xff", "<", "\u2028", "a b"} {
		s := flex.Failure(errors.New(strings.Repeat(unit, 1<<16)))
		got := kubeletReads(t, s.Encode())
		if got.Status != "Failure" || len(got.Message) > 1024 || !utf8.ValidString(got.Message) {
			t.Errorf("%q: status %s, %d bytes", unit, got.Status, len(got.Message))
		}
	}
	s := flex.Failure(errors.New(strings.Repeat("ä", 600)))
	if got := kubeletReads(t, s.Encode()); !strings.HasSuffix(got.Message, "ä…") || len(got.Message) < 1020 {
		t.Errorf("cut to %d bytes ending in %q", len(got.Message), got.Message[len(got.Message)-8:])
	}
	s = flex.Failure(errors.New(strings.Repeat("a", 1024)))
	if got := kubeletReads(t, s.Encode()); len(got.Message) != 1024 || strings.Contains(got.Message, "…") {
		t.Error("a message that just fits is cut")
	}
}

type badError struct{}

func (*badError) Error() string { panic("no text") }

func TestFailureSurvivesBadErrors(t *testing.T) {
	for _, err := range []error{(*flex.Error)(nil), &badError{}, errors.New(""), errors.Join()} {
		if got := kubeletReads(t, flex.Failure(err).Encode()); got.Status != "Failure" || got.Message == "" {
			t.Errorf("%T: got %+v", err, got)
		}
	}
}
