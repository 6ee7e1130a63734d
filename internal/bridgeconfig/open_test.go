package bridgeconfig_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
)

const open = head + `# <fill in nothing (a comment)>
drivers:
- flexDriver: example.com/disk
  csiDriver: <fill in prefix (the namespace of the operator)>.csi.example.com
  # The rest is wrong, too.
  attach: 5
  volume:
    context: |
      {"cluster": "<fill in cluster (what
      it says)>", "id": "<fill in cluster (the id)>" + "<fill in id (this)> <fill in id (this)>"}
  secrets: {nodeStage: {fromFlexSecret: {user: "<fill in user>", key: "<fill in "}}}
`

// TestOpenPlaces: they are listed before anything else, each once.
func TestOpenPlaces(t *testing.T) {
	_, err := bridgeconfig.Loader{}.Decode([]byte(open))
	want := []string{
		`drivers[0].csiDriver (line 6): prefix is to be filled in (the namespace of the operator): write it in place of "<fill in prefix (…)>"`,
		`drivers[0].volume.context (line 10): cluster is to be filled in (what it says): write it in place of "<fill in cluster (…)>"`,
		`drivers[0].volume.context (line 10): cluster is to be filled in (the id): write it in place of "<fill in cluster (…)>"`,
		`drivers[0].volume.context (line 10): id is to be filled in (this): write it in place of "<fill in id (…)>"`,
		`drivers[0].secrets.nodeStage.fromFlexSecret.user (line 13): user is to be filled in: write it in place of "<fill in user>"`,
		`drivers[0].secrets.nodeStage.fromFlexSecret.key (line 13): something is to be filled in: write it in place of "<fill in >"`,
	}
	if diff := cmp.Diff(want, faults(t, err)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	places, err := bridgeconfig.OpenPlaces([]byte(open))
	if err != nil {
		t.Fatal(err)
	}
	if len(places) != len(want) {
		t.Errorf("%d open places, %d faults", len(places), len(want))
	}
	if _, err := bridgeconfig.OpenPlaces([]byte("a: b: c")); err == nil {
		t.Error("no error for what is no YAML")
	}
}

func TestFill(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"a <fill in x (that)>b<fill in y (y)><fill in x ()>", "a 1b<fill in y (y)>1"},
		{"<fill in x", "1"},
		{"<fill in xy (x)>\n<fill in", "<fill in xy (x)>\n<fill in"},
		{"", ""},
	} {
		if got := bridgeconfig.Fill(tt.in, "x", "1"); got != tt.want {
			t.Errorf("Fill(%q) = %q, want %q", tt.in, got, tt.want)
		}
	}
}
