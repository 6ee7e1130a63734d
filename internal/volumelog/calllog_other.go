//go:build !linux

package volumelog

import (
	"errors"
	"log/slog"
)

// OpenCallLog returns a silent logger: drivers run on Linux, and elsewhere package flex is linked for
// its types only.
func OpenCallLog(string, string, slog.Level, func(string) string, ...any) (*slog.Logger, func(), error) {
	return slog.New(slog.DiscardHandler), func() {}, errors.ErrUnsupported
}
