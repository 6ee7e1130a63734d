package requestid_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/flex2csi/flex2csi/internal/requestid"
)

func TestLogger(t *testing.T) {
	for _, c := range []struct {
		ctx  context.Context
		want string
	}{
		{t.Context(), ""},
		{requestid.With(t.Context(), ""), ""},
		{requestid.With(t.Context(), "9f86"), "9f86"},
		{requestid.With(requestid.With(t.Context(), "old"), "new"), "new"},
		{context.WithoutCancel(requestid.With(t.Context(), "kept")), "kept"},
	} {
		if got := requestid.From(c.ctx); got != c.want {
			t.Errorf("From gives %q, want %q", got, c.want)
		}
		var out bytes.Buffer
		requestid.Logger(c.ctx, slog.New(slog.NewTextHandler(&out, nil))).Info("hello")
		if got := strings.Contains(out.String(), "request="); got != (c.want != "") || !strings.Contains(out.String(), c.want) {
			t.Errorf("with the id %q the line is %s", c.want, out.String())
		}
	}
}
