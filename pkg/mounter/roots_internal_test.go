package mounter

import (
	"slices"
	"testing"
)

// All exports of a server may have one device number and the root "/", so that two roots
// there looked like one place.
func TestExportsAreApart(t *testing.T) {
	table := []*Info{
		{ID: 1, Major: 8, Minor: 1, Root: "/", Mountpoint: "/", FSType: "ext4", Source: "/dev/sda1"},
		{ID: 2, Minor: 50, Root: "/", Mountpoint: "/images", FSType: "nfs4", Source: "[fd00::1]:/srv/images"},
		{ID: 3, Minor: 50, Root: "/", Mountpoint: "/shared", FSType: "nfs4", Source: "[fd00::1]:/srv/shared"},
		{ID: 4, Minor: 50, Root: "/", Mountpoint: "/inside", FSType: "nfs", Source: "[fd00::1]:/srv/images/a"},
		{ID: 5, Minor: 50, Root: "/images", Mountpoint: "/bound", FSType: "nfs4", Source: "[fd00::1]:/srv"},
		{ID: 6, Minor: 51, Root: "/", Mountpoint: "/other", FSType: "nfs4", Source: "other:/srv/images"},
		{ID: 7, Minor: 50, Root: "/", Mountpoint: "/all/server", FSType: "nfs4", Source: "[fd00::1]:/"},
	}
	for other, apart := range map[string]bool{"/shared": true, "/other": true, "/inside": false, "/bound": false, "/bound/b": false, "/all": false, "/all/server/x": true} {
		own, err := locationsBelow("/images", mountAbove("/images", table), table)
		if err != nil {
			t.Fatal(err)
		}
		places, err := locationsBelow(other, mountAbove(other, table), table)
		if err != nil {
			t.Fatal(err)
		}
		if got := !slices.ContainsFunc(own, func(p location) bool { return slices.ContainsFunc(places, p.nested) }); got != apart {
			t.Errorf("/images and %s: apart is %t, want %t: %v, %v", other, got, apart, own, places)
		}
	}
}
