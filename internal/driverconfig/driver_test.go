package driverconfig_test

import (
	"strings"
	"testing"

	"github.com/flex2csi/flex2csi/internal/driverconfig"
)

func TestParseDriverName(t *testing.T) {
	tests := []struct {
		in   string
		want string // of the error; empty: accepted
	}{
		{"example.com/disk", ""},
		{"azure/blobfuse", ""},
		{"ceph.rook.io/rook-ceph-system", ""},
		{"Acme_2/NFS_v4", ""},
		{"disk", "has no vendor"},
		{"", "has no vendor"},
		{"/disk", "vendor is empty"},
		{"example.com/", "name is empty"},
		{"example.com/disk/x", `name has '/' in it`},
		{".example/disk", "vendor does not begin and end"},
		{"example/.disk", "name does not begin and end"},
		{"example/disk.", "name does not begin and end"},
		{"-v/disk", "vendor does not begin and end"},
		{"../disk", "vendor does not begin and end"},
		{"exa~mple/disk", `vendor has '~' in it`},
		{"example/di~sk", `name has '~' in it`},
		{"example/di sk", `name has ' ' in it`},
		{"example/disk\n", `name has '\n' in it`},
		{"éxample/disk", `vendor has 'é' in it`},
		{strings.Repeat("v", 129) + "/disk", "vendor is longer than 128 bytes"},
		{"v/" + strings.Repeat("n", 64), "name is longer than 63 bytes"},
	}
	for _, tt := range tests {
		got, err := driverconfig.ParseDriverName(tt.in)
		switch {
		case tt.want == "" && (err != nil || got.String() != tt.in):
			t.Errorf("ParseDriverName(%q) = %q, %v", tt.in, got, err)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("ParseDriverName(%q): error %v, want %q", tt.in, err, tt.want)
		}
	}
}

func TestDriverOfExecutable(t *testing.T) {
	tests := []struct{ path, want string }{
		{"/plugins/example.com~disk/disk", "example.com/disk"},
		{"/plugins/example.com~disk/other", ""},
		{"/usr/bin/flexdriver", ""},
		{"/plugins/a~b~c/c", ""},
		{"/plugins/.example~disk.new/disk", ""},
		{"disk", ""},
	}
	for _, tt := range tests {
		got, err := driverconfig.DriverOfExecutable(tt.path)
		if got.String() != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("DriverOfExecutable(%q) = %q, %v, want %q", tt.path, got, err, tt.want)
		}
	}
}
