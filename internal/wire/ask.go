package wire

import (
	"context"
	"encoding/json"
	"time"

	"github.com/flex2csi/flex2csi/pkg/flex"
)

// Ask puts a question to the daemon, without waiting for one that is not
// there, and returns the document that answers it. Its errors are those of
// [Call], and failed_precondition for a daemon that does not know the question.
func Ask(ctx context.Context, socket, kind string, timeout time.Duration) (json.RawMessage, error) {
	answer, err := CallNow(ctx, socket, newQuestion(kind, timeout))
	if err != nil {
		return nil, err
	}
	if answer.Status.Status != flex.StatusSuccess || answer.Document == nil {
		return nil, flex.Errorf(flex.CodeFailedPrecondition, "flex2csi (%s) runs, but does not tell its %s: %s; one of an older release cannot: bring it to the release of this program", socket, kind, answer.Status.Message)
	}
	return answer.Document, nil
}
