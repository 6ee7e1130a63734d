package flex_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flex2csi/flex2csi/pkg/flex"
)

func TestParseOptions(t *testing.T) {
	secrets := map[string]flex.Secret{"password": flex.NewSecret([]byte("hunter2")), "empty": flex.NewSecret(nil)}
	tests := []struct {
		name, json string
		want       flex.Options
	}{
		{"nothing", `{}`, flex.Options{}},
		{"after a restart", bareJSON, bareOptions()},
		{"user options verbatim", `{"a":"<&>\u2028\n","":"","A":"é"}`, flex.Options{User: map[string]string{"a": "<&>\u2028\n", "": "", "A": "é"}}},
		{"escaped by the kubelet", `{"a":"\u003cb\u003e"}`, flex.Options{User: map[string]string{"a": "<b>"}}},
		{"mount", `{"kubernetes.io/fsType":"xfs","kubernetes.io/mounterArgs.FsGroup":"1000","kubernetes.io/pod.name":"p","kubernetes.io/pod.namespace":"n","kubernetes.io/pod.uid":"u-1","kubernetes.io/pvOrVolumeName":"pv1","kubernetes.io/readwrite":"rw","kubernetes.io/secret/empty":"","kubernetes.io/secret/password":"aHVudGVyMg==","kubernetes.io/serviceAccount.name":"default"}`, flex.Options{
			FSType: "xfs", VolumeName: "pv1", PodName: "p", PodNamespace: "n", PodUID: "u-1", ServiceAccountName: "default",
			FSGroup: new(int64(1000)), Secrets: secrets,
		}},
		{"no service account", `{"kubernetes.io/serviceAccount.name":""}`, flex.Options{}},
		{"old fsGroup", `{"kubernetes.io/fsGroup":"7"}`, flex.Options{FSGroup: new(int64(7))}},
		{"both fsGroups", `{"kubernetes.io/fsGroup":"7","kubernetes.io/mounterArgs.FsGroup":"8"}`, flex.Options{FSGroup: new(int64(8))}},
		{"both fsGroups, new first", `{"kubernetes.io/mounterArgs.FsGroup":"8","kubernetes.io/fsGroup":"7"}`, flex.Options{FSGroup: new(int64(8))}},
		{"fsGroup root", `{"kubernetes.io/fsGroup":"0"}`, flex.Options{FSGroup: new(int64(0))}},
		{"from a later Kubernetes", `{"kubernetes.io/new":"x"}`, flex.Options{Extra: map[string]string{"kubernetes.io/new": "x"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := flex.ParseOptions(tt.json)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			argument, err := got.MarshalArgument()
			if err != nil {
				t.Fatal(err)
			}
			again, err := flex.ParseOptions(argument)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(got, again); diff != "" {
				t.Errorf("changed by MarshalArgument (-before +after):\n%s", diff)
			}
		})
	}
}

func TestMarshalArgumentIsTheKubeletsOwn(t *testing.T) {
	for _, argument := range []string{fullJSON, bareJSON} {
		o, err := flex.ParseOptions(argument)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := o.MarshalArgument(); err != nil || got != argument {
			t.Errorf("got %s, %v\nwant %s", got, err, argument)
		}
	}
}

func TestParseOptionsRefuses(t *testing.T) {
	tests := []struct{ json, want string }{
		{"", "the JSON options are empty: want one JSON object"},
		{" ", "the JSON options are empty: want one JSON object"},
		{"hunter2", "the JSON options do not begin with {: are the arguments in the right order?"},
		{`"hunter2"`, "the JSON options are a string: want one JSON object"},
		{"null", "the JSON options are null: want one JSON object"},
		{"[]", "the JSON options are an array: want one JSON object"},
		{"1", "the JSON options are a number: want one JSON object"},
		{"true", "the JSON options are a boolean: want one JSON object"},
		{`{"a":"b"}{}`, "the JSON options are not valid JSON: syntax error at byte 10 of 11"},
		{`{"a":"b",}`, "the JSON options are not valid JSON: syntax error at byte 10 of 10"},
		{`{'a':'b'}`, "the JSON options are not valid JSON: syntax error at byte 2 of 9"},
		{"{\"a\":\"\xff\"}", "the JSON options are not valid UTF-8"},
		{`{"a":1}`, `the option "a" is a number: want a string in double quotes`},
		{`{"a":true}`, `the option "a" is a boolean: want a string in double quotes`},
		{`{"a":null}`, `the option "a" is null: want a string in double quotes`},
		{`{"a":{"b":"hunter2"}}`, `the option "a" is an object: want a string in double quotes`},
		{`{"a":["hunter2"]}`, `the option "a" is an array: want a string in double quotes`},
		{`{"a":"1","b":"2","a":"3"}`, `the option "a" is given twice`},
		{`{"kubernetes.io/readwrite":"RO"}`, `the option "kubernetes.io/readwrite" must be "ro" or "rw"`},
		{`{"kubernetes.io/pvOrVolumeName":"../x"}`, `the option "kubernetes.io/pvOrVolumeName" "../x" is not the name of a Kubernetes object`},
		{`{"kubernetes.io/pod.uid":"a\u0000"}`, `the option "kubernetes.io/pod.uid" "a\x00" contains a control character, such as a newline or NUL`},
		{`{"kubernetes.io/fsType":"ext4\nx"}`, `the option "kubernetes.io/fsType" "ext4\nx" contains a control character, such as a newline or NUL`},
		{`{"kubernetes.io/fsGroup":"-1"}`, `the option "kubernetes.io/fsGroup" is not the number of a group`},
		{`{"kubernetes.io/fsGroup":"4294967295"}`, `the option "kubernetes.io/fsGroup" is not the number of a group`},
		{`{"kubernetes.io/mounterArgs.FsGroup":""}`, `the option "kubernetes.io/mounterArgs.FsGroup" is not the number of a group`},
		{`{"kubernetes.io/secret/password":"hunter2!"}`, `the option "kubernetes.io/secret/password" is not valid base64: encode the value, for example with base64 -w0`},
		{`{"` + strings.Repeat("k", 100) + `":1}`, `the option "` + strings.Repeat("k", 80) + `"… is a number: want a string in double quotes`},
	}
	for _, tt := range tests {
		t.Run(tt.json, func(t *testing.T) {
			o, err := flex.ParseOptions(tt.json)
			if err == nil {
				t.Fatalf("accepted: %+v", o)
			}
			if err.Error() != tt.want {
				t.Errorf("\ngot  %s\nwant %s", err, tt.want)
			}
			if flex.CodeOf(err) != flex.CodeInvalidArgument {
				t.Errorf("code %q", flex.CodeOf(err))
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the message repeats a value: %s", err)
			}
		})
	}
}
