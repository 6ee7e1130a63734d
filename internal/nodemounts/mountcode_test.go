package nodemounts_test

import (
	"context"
	"fmt"
	"io/fs"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/internal/nodemounts"
	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/pkg/mounter"
)

func TestOf(t *testing.T) {
	for err, want := range map[error]flex.Code{
		mounter.ErrUnsafePath:      flex.CodeInvalidArgument,
		mounter.ErrWrongFilesystem: flex.CodeFailedPrecondition,
		mounter.ErrNotFormatted:    flex.CodeFailedPrecondition,
		mounter.ErrReadOnly:        flex.CodeFailedPrecondition,
		mounter.ErrOccupied:        flex.CodeFailedPrecondition,
		mounter.ErrBusy:            flex.CodeAborted,
		fs.ErrNotExist:             flex.CodeNotFound,
		unix.ENOENT:                flex.CodeNotFound,
		unix.EACCES:                flex.CodePermissionDenied,
		unix.EPERM:                 flex.CodePermissionDenied,
		unix.EIO:                   flex.CodeInternal,
		context.DeadlineExceeded:   flex.CodeDeadlineExceeded,
		context.Canceled:           flex.CodeCanceled,
	} {
		wrapped := &mounter.Error{Op: "test", Err: fmt.Errorf("wrapped: %w", err)}
		if got := flex.CodeOf(nodemounts.WithCode(wrapped)); got != want {
			t.Errorf("%v has code %s, want %s", err, got, want)
		}
	}
	if nodemounts.WithCode(nil) != nil {
		t.Error("nil is an error")
	}
	if got := flex.CodeOf(nodemounts.WithCode(flex.Errorf(flex.CodeUnavailable, "x: %w", fs.ErrNotExist))); got != flex.CodeUnavailable {
		t.Errorf("an error that had a code has %s", got)
	}
}
