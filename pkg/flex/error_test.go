package flex_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"github.com/flex2csi/flex2csi/pkg/flex"
)

func TestCodeOf(t *testing.T) {
	notFound := flex.Errorf(flex.CodeNotFound, "no image: %w", fs.ErrNotExist)
	tests := []struct {
		err  error
		want flex.Code
	}{
		{nil, ""},
		{errors.New("x"), flex.CodeInternal},
		{notFound, flex.CodeNotFound},
		{fmt.Errorf("a: %w", notFound), flex.CodeNotFound},
		{flex.Errorf(flex.CodeUnavailable, "outer: %w", notFound), flex.CodeUnavailable},
		{errors.Join(errors.New("x"), notFound), flex.CodeNotFound},
		{&flex.Error{Err: errors.New("no code")}, flex.CodeInternal},
		{(*flex.Error)(nil), flex.CodeInternal},
		{fmt.Errorf("a: %w", context.DeadlineExceeded), flex.CodeDeadlineExceeded},
		{context.Canceled, flex.CodeCanceled},
	}
	for _, tt := range tests {
		if got := flex.CodeOf(tt.err); got != tt.want {
			t.Errorf("CodeOf(%#v) = %q, want %q", tt.err, got, tt.want)
		}
	}
	if notFound.Error() != "no image: file does not exist" || !errors.Is(notFound, fs.ErrNotExist) {
		t.Errorf("text %q or chain is wrong", notFound)
	}
	if got := (&flex.Error{Code: flex.CodeAborted}).Error(); got != "aborted" {
		t.Errorf("an Error without an Err says %q", got)
	}
}
