package csivol_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// TestFinal: only the driver's own answer to the call itself is final.
func TestFinal(t *testing.T) {
	for _, test := range []struct {
		err             error
		final, notFound bool
	}{
		{nil, false, false},
		{errors.New("test"), false, false},
		{&csivol.RPCError{Code: flex.CodeInternal}, true, false},
		{&csivol.RPCError{Code: flex.CodeNotFound}, true, true},
		{fmt.Errorf("wrapped: %w", &csivol.RPCError{Code: flex.CodeNotFound}), true, true},
		{&csivol.RPCError{Code: flex.CodeNotFound, NoAnswer: true}, false, false},
		{&csivol.RPCError{Code: flex.CodeAborted}, false, false},
		{&csivol.RPCError{Code: flex.CodeDeadlineExceeded}, false, false},
	} {
		if final, notFound := csivol.Final(test.err), csivol.NotFound(test.err); final != test.final || notFound != test.notFound {
			t.Errorf("%#v: final %t, not found %t; want %t, %t", test.err, final, notFound, test.final, test.notFound)
		}
	}
}
