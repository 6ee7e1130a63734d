// Package version says what a binary was built from.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// Info is what the version command of each binary prints.
type Info struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// Get returns that of the running binary.
func Get() Info {
	info := Info{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if b, ok := debug.ReadBuildInfo(); ok {
		info.Version = b.Main.Version
		for _, s := range b.Settings {
			if s.Key == "vcs.revision" {
				info.Revision = s.Value
			}
		}
	}
	return info
}

// Text is one line for people.
func (i Info) Text(program string) string {
	line := fmt.Sprintf("%s %s %s (%s, %s)", program, i.Version, i.Revision, i.Go, i.Platform)
	return strings.Join(strings.Fields(line), " ")
}
