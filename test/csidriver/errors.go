package csidriver

import (
	"context"
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flex2csi/flex2csi/pkg/mounter"
)

// answer gives an error the code that the CSI specification wants for it.
func answer(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	code := codes.Internal
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		code = status.FromContextError(err).Code()
	case errors.Is(err, mounter.ErrUnsafePath):
		code = codes.InvalidArgument
	case errors.Is(err, mounter.ErrWrongFilesystem), errors.Is(err, mounter.ErrNotFormatted), errors.Is(err, mounter.ErrOccupied),
		errors.Is(err, mounter.ErrBusy), errors.Is(err, fs.ErrNotExist):
		code = codes.FailedPrecondition
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		code = codes.ResourceExhausted
	case errors.Is(err, unix.EFBIG), errors.Is(err, mounter.ErrTooLarge):
		code = codes.OutOfRange
	}
	return status.Error(code, err.Error())
}

// missing names the first of some required fields that is not set.
func missing(fields ...[2]string) error {
	for _, f := range fields {
		if f[1] == "" {
			return status.Errorf(codes.InvalidArgument, "%s is missing", f[0])
		}
	}
	return nil
}

func field(name, value string) [2]string { return [2]string{name, value} }

func noVolume(id string) error {
	return status.Errorf(codes.NotFound, "there is no volume %s", id)
}
