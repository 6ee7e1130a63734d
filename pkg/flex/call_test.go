package flex_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flex2csi/flex2csi/pkg/flex"
)

const (
	podDir    = "/var/lib/kubelet/pods/5b7c/volumes/example.com~disk/pv1"
	deviceDir = "/var/lib/kubelet/plugins/kubernetes.io/flexvolume/example.com/disk/mounts/pv1"

	// As Kubernetes v1.37.1 writes it, and what is left after a restart.
	fullJSON = `{"image":"/a.img","kubernetes.io/fsType":"ext4","kubernetes.io/pvOrVolumeName":"pv1","kubernetes.io/readwrite":"ro"}`
	bareJSON = `{"kubernetes.io/fsType":"","kubernetes.io/pvOrVolumeName":"pv1","kubernetes.io/readwrite":"rw"}`
)

func fullOptions() flex.Options {
	return flex.Options{FSType: "ext4", ReadOnly: true, VolumeName: "pv1", User: map[string]string{"image": "/a.img"}}
}

func bareOptions() flex.Options { return flex.Options{VolumeName: "pv1"} }

func TestParseCall(t *testing.T) {
	tests := []struct {
		args []string
		want flex.Call
	}{
		{[]string{"init"}, flex.Call{}},
		{[]string{"init", "surplus", "{"}, flex.Call{}},
		{[]string{"getvolumename", fullJSON}, flex.Call{Options: fullOptions(), VolumeName: "pv1"}},
		{[]string{"getvolumename", bareJSON}, flex.Call{Options: bareOptions(), VolumeName: "pv1"}},
		{[]string{"getvolumename", "{}"}, flex.Call{}},
		{[]string{"attach", fullJSON, "node-1.example.com"}, flex.Call{Options: fullOptions(), VolumeName: "pv1", NodeName: "node-1.example.com"}},
		{[]string{"isattached", fullJSON, "n1"}, flex.Call{Options: fullOptions(), VolumeName: "pv1", NodeName: "n1"}},
		{[]string{"isattached", "n1", fullJSON}, flex.Call{Options: fullOptions(), VolumeName: "pv1", NodeName: "n1"}},
		{[]string{"waitforattach", "/dev/sdb", fullJSON}, flex.Call{Options: fullOptions(), VolumeName: "pv1", Device: "/dev/sdb"}},
		{[]string{"waitforattach", "", bareJSON}, flex.Call{Options: bareOptions(), VolumeName: "pv1"}},
		{[]string{"mountdevice", deviceDir, "csi-0123", fullJSON}, flex.Call{Options: fullOptions(), VolumeName: "pv1", Dir: deviceDir, Device: "csi-0123"}},
		{[]string{"mountdevice", deviceDir, "", fullJSON}, flex.Call{Options: fullOptions(), VolumeName: "pv1", Dir: deviceDir}},
		{[]string{"mount", podDir, fullJSON}, flex.Call{Options: fullOptions(), VolumeName: "pv1", Dir: podDir}},
		{[]string{"mount", "/with space/and-dash", " {} \n"}, flex.Call{Dir: "/with space/and-dash"}},
		{[]string{"unmount", podDir}, flex.Call{Dir: podDir}},
		{[]string{"unmountdevice", deviceDir}, flex.Call{Dir: deviceDir}},
		{[]string{"detach", "pv1", "n1"}, flex.Call{VolumeName: "pv1", NodeName: "n1"}},
		{[]string{"expandfs", fullJSON, "", podDir, "2147483648", "1073741824"}, flex.Call{Options: fullOptions(), VolumeName: "pv1", Dir: podDir, NewSize: 2 << 30, OldSize: 1 << 30}},
		{[]string{"expandfs", fullJSON, "/dev/loop0", podDir, "9223372036854775807", "0"}, flex.Call{Options: fullOptions(), VolumeName: "pv1", Device: "/dev/loop0", Dir: podDir, NewSize: 1<<63 - 1}},
		{[]string{"expandvolume", bareJSON, deviceDir, "2", "1"}, flex.Call{Options: bareOptions(), VolumeName: "pv1", Dir: deviceDir, NewSize: 2, OldSize: 1}},
		{[]string{"expandvolume", bareJSON, "", "2", "1"}, flex.Call{Options: bareOptions(), VolumeName: "pv1", NewSize: 2, OldSize: 1}},
		{[]string{"expandvolume", bareJSON, "example.com/disk/mounts/pv1", "2", "1"}, flex.Call{Options: bareOptions(), VolumeName: "pv1", NewSize: 2, OldSize: 1}},
	}
	for _, tt := range tests {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			tt.want.Command = flex.Command(tt.args[0])
			got, err := flex.ParseCall(tt.args)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseCallRefuses(t *testing.T) {
	tests := []struct {
		args []string
		want string // the whole message: it is what a person reads at three in the morning
	}{
		{nil, "no callout given: want one of init, getvolumename, attach, isattached, waitforattach, mountdevice, mount, expandvolume, expandfs, unmount, unmountdevice, detach"},
		{[]string{"getvolumename"}, "getvolumename: got 0 arguments, want 1: the JSON options are missing; usage: getvolumename <JSON options>"},
		{[]string{"attach", "n1"}, "attach: got 1 arguments, want 2: the JSON options are missing; usage: attach <JSON options> <node name>"},
		{[]string{"attach", "{}", "n1", "x"}, "attach: got 3 arguments, want 2; usage: attach <JSON options> <node name>"},
		{[]string{"attach", "{}"}, "attach: got 1 arguments, want 2; usage: attach <JSON options> <node name>"},
		{[]string{"attach", "n1", "{}"}, "attach: the JSON options do not begin with {: are the arguments in the right order?"},
		{[]string{"attach", "{}", ""}, "attach: the node name is empty"},
		{[]string{"attach", "{}", "a/b"}, `attach: the node name "a/b" is not the name of a Kubernetes object`},
		{[]string{"attach", "{}", "{}"}, "attach: the node name is a JSON object: are the arguments in the right order?"},
		{[]string{"isattached", "n1", "n2"}, "isattached: the JSON options do not begin with {: are the arguments in the right order?"},
		{[]string{"isattached", "{}", "{}"}, "isattached: the node name is a JSON object: are the arguments in the right order?"},
		{[]string{"waitforattach", "{}", "/dev/sdb"}, "waitforattach: the device is a JSON object: are the arguments in the right order?"},
		{[]string{"mountdevice", deviceDir, "{}"}, "mountdevice: got 2 arguments, want 3; usage: mountdevice <directory> <device> <JSON options>"},
		{[]string{"mountdevice", deviceDir, "a\nb", "{}"}, `mountdevice: the device "a\nb" contains a control character, such as a newline or NUL`},
		{[]string{"mount", podDir}, "mount: got 1 arguments, want 2: the JSON options are missing; usage: mount <directory> <JSON options>"},
		{[]string{"mount", "", "{}"}, "mount: the directory is empty: want an absolute path"},
		{[]string{"mount", "rel", "{}"}, `mount: the directory "rel" is not an absolute path`},
		{[]string{"mount", "-o", "{}"}, `mount: the directory "-o" is not an absolute path`},
		{[]string{"mount", "/a/../b", "{}"}, `mount: the directory "/a/../b" is not a clean path: write "/b"`},
		{[]string{"mount", "/a/", "{}"}, `mount: the directory "/a/" is not a clean path: write "/a"`},
		{[]string{"mount", "//a", "{}"}, `mount: the directory "//a" is not a clean path: write "/a"`},
		{[]string{"mount", "/", "{}"}, "mount: the directory is the root directory"},
		{[]string{"mount", "/a\nb", "{}"}, `mount: the directory "/a\nb" contains a control character, such as a newline or NUL`},
		{[]string{"mount", "/a\x00b", "{}"}, `mount: the directory "/a\x00b" contains a control character, such as a newline or NUL`},
		{[]string{"mount", "/a\xff", "{}"}, `mount: the directory "/a\xff" is not valid UTF-8`},
		{[]string{"mount", "/" + strings.Repeat("a", 4095), "{}"}, "mount: the directory is 4096 bytes long: at most 4095 are allowed"},
		{[]string{"mount", `{"password":"hunter2"}`, podDir}, "mount: the directory is a JSON object: are the arguments in the right order?"},
		{[]string{"mount", podDir, ""}, "mount: the JSON options are empty: want one JSON object"},
		{[]string{"mount", podDir, "null"}, "mount: the JSON options are null: want one JSON object"},
		{[]string{"mount", podDir, `["hunter2"]`}, "mount: the JSON options are an array: want one JSON object"},
		{[]string{"mount", podDir, `{"password":"hunter2"`}, "mount: the JSON options are not valid JSON: syntax error at byte 21 of 21"},
		{[]string{"mount", podDir, `{"size":10}`}, `mount: the option "size" is a number: want a string in double quotes`},
		{[]string{"unmount"}, "unmount: got 0 arguments, want 1; usage: unmount <directory>"},
		{[]string{"unmount", podDir, "{}"}, "unmount: got 2 arguments, want 1; usage: unmount <directory>"},
		{[]string{"unmountdevice", "x"}, `unmountdevice: the directory "x" is not an absolute path`},
		{[]string{"detach", "pv1"}, "detach: got 1 arguments, want 2; usage: detach <volume name> <node name>"},
		{[]string{"detach", "..", "n1"}, `detach: the volume name ".." is not the name of a Kubernetes object`},
		{[]string{"detach", strings.Repeat("a", 254), "n1"}, "detach: the volume name is 254 bytes long: at most 253 are allowed"},
		{[]string{"expandfs", "", podDir, "2", "1"}, "expandfs: got 4 arguments, want 5: the JSON options are missing; usage: expandfs <JSON options> <device> <directory> <new size> <old size>"},
		{[]string{"expandfs", "{}", "", podDir, "0", "0"}, "expandfs: the new size is 0: want the wanted size in bytes"},
		{[]string{"expandfs", "{}", "", podDir, "-1", "0"}, `expandfs: the new size "-1" is not a size: want a number of bytes`},
		{[]string{"expandfs", "{}", "", podDir, "1Gi", "0"}, `expandfs: the new size "1Gi" is not a size: want a number of bytes`},
		{[]string{"expandfs", "{}", "", podDir, "9223372036854775808", "0"}, `expandfs: the new size "9223372036854775808" is not a size: want a number of bytes`},
		{[]string{"expandfs", "{}", "", podDir, "2", ""}, `expandfs: the old size "" is not a size: want a number of bytes`},
		{[]string{"expandvolume", "{}", "/a/../b", "2", "1"}, `expandvolume: the path "/a/../b" is not a clean path: write "/b"`},
	}
	for _, tt := range tests {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			call, err := flex.ParseCall(tt.args)
			if err == nil {
				t.Fatalf("accepted: %+v", call)
			}
			if err.Error() != tt.want {
				t.Errorf("\ngot  %s\nwant %s", err, tt.want)
			}
			if got := flex.CodeOf(err); got != flex.CodeInvalidArgument {
				t.Errorf("code %q", got)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the message repeats the JSON: %s", err)
			}
		})
	}
}

func TestParseCallUnknown(t *testing.T) {
	for _, command := range []string{"", "Mount", "mount ", "provision", "--help", `{"a":"hunter2"}`, strings.Repeat("x", 1<<16)} {
		_, err := flex.ParseCall([]string{command, "x"})
		if flex.CodeOf(err) != flex.CodeUnimplemented {
			t.Errorf("%.20q: got %v", command, err)
		}
		if err != nil && (len(err.Error()) > 400 || strings.Contains(err.Error(), "hunter2")) {
			t.Errorf("%.20q: message %q", command, err)
		}
	}
}

// Every callout with every wrong number of arguments is an error, not a panic
// and not a shifted call.
func TestParseCallCountsArguments(t *testing.T) {
	all := []string{"{}", "/a", "{}", "/b", "1", "2", "{}"}
	for _, command := range flex.Commands() {
		accepted := 0
		for n := range all {
			args := append([]string{string(command)}, all[:n]...)
			if _, err := flex.ParseCall(args); err == nil {
				accepted++
			}
		}
		if command != flex.CommandInit && accepted > 1 {
			t.Errorf("%s is accepted with %d different numbers of arguments", command, accepted)
		}
	}
}

func TestCommands(t *testing.T) {
	if n := len(flex.Commands()); n != 12 {
		t.Errorf("%d callouts, want 12", n)
	}
	for _, c := range flex.Commands() {
		if !c.Known() || flex.DefaultTimeout(c) <= 0 {
			t.Errorf("%s is not known or has no timeout", c)
		}
	}
	if flex.Command("provision").Known() {
		t.Error("provision is known")
	}
}
