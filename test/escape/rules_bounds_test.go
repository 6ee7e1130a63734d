package escape

import (
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/test/trace"
)

// growing holds sizes to the bound.
func (g *guard) growing(c *trace.Call) bool {
	size := int64(c.Args[1])
	if c.Nr == unix.SYS_FALLOCATE {
		size = int64(c.Args[2] + c.Args[3])
	}
	path := c.Link(fmt.Sprintf("fd/%d", int32(c.Args[0])))
	switch bound := g.boundOf(path); {
	case bound == 0:
		return g.bad(c.Process, "makes %s, one image more than its namespace may have", filepath.Dir(path))
	case size > bound:
		return g.bad(c.Process, "makes %s %d bytes long, which may have %d", path, size, bound)
	}
	return true
}

// boundOf is what a file may grow to; 0 if it may not be at all. Each driver with roots
// has a bound of its own for images.
func (g *guard) boundOf(path string) int64 {
	switch {
	case !below(g.w.images, path):
		return largest
	case below(g.w.images+"/"+crowded, path):
		return 0
	case g.driver.isBounded:
		return mostSize
	}
	return room
}

// mayLock: a driver locks the disk that it attaches, and keeps it so from all other
// nodes. It has to be one that a volume may be on.
func (g *guard) mayLock(path string) bool {
	return strings.HasPrefix(path, g.driver.state()) && (g.locks || g.command == flex.CommandDetach || path == g.driver.state()+"lock")
}

// mayBeLocked: the volume is one that the driver may attach.
func (w *world) mayBeLocked(d *driver, a *attempt) bool {
	image, isImage := strings.CutPrefix(filepath.Clean(a.options["image"]), w.images+"/")
	device := a.options["device"]
	return d.rooted && (isImage && strings.Contains(image, "/") || belowAny(filepath.Clean(device), w.devicesDir, "/dev/disk") ||
		strings.HasPrefix(device, "UUID=") || strings.HasPrefix(device, "PARTUUID="))
}
