package nodemounts

// This file gives errors of pkg/mounter, which knows no FlexVolume,
// their class for the answer to a callout.

import (
	"errors"
	"io/fs"

	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/pkg/mounter"
)

// WithCode returns err with its class, or as it is if it has one or is nil.
func WithCode(err error) error {
	if err == nil || flex.CodeOf(err) != flex.CodeInternal {
		return err
	}
	code := flex.CodeInternal
	switch {
	case errors.Is(err, mounter.ErrUnsafePath), errors.Is(err, mounter.ErrTooLarge):
		code = flex.CodeInvalidArgument
	case errors.Is(err, mounter.ErrWrongFilesystem), errors.Is(err, mounter.ErrNotFormatted), errors.Is(err, mounter.ErrReadOnly), errors.Is(err, mounter.ErrOccupied):
		code = flex.CodeFailedPrecondition
	case errors.Is(err, mounter.ErrBusy):
		code = flex.CodeAborted
	case errors.Is(err, fs.ErrNotExist):
		code = flex.CodeNotFound
	case errors.Is(err, fs.ErrPermission):
		code = flex.CodePermissionDenied
	}
	return &flex.Error{Code: code, Err: err}
}
