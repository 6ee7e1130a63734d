package wire

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"hash/fnv"
	"time"

	"github.com/flex2csi/flex2csi/pkg/flex"
)

// Ask puts a question to the daemon, without waiting for one that is not
// there, and returns the document that answers it. Its errors are those of
// [Call], and failed_precondition for a daemon that does not know the question.
func Ask(ctx context.Context, socket, kind string, timeout time.Duration) (json.RawMessage, error) {
	return ask(ctx, socket, newQuestion(kind, timeout))
}

func ask(ctx context.Context, socket string, r *Request) (json.RawMessage, error) {
	answer, err := CallNow(ctx, socket, r)
	if err != nil {
		return nil, err
	}
	if answer.Status.Status != flex.StatusSuccess || answer.Document == nil {
		return nil, flex.Errorf(flex.CodeFailedPrecondition, "flex2csi (%s) runs, but does not tell its %s: %s; one of an older release cannot: bring it to the release of this program", socket, r.Kind, answer.Status.Message)
	}
	return answer.Document, nil
}

const ownPrefix = "@flex2csi/"

// OwnSocket is where the process that serves a socket, or will when it is its
// turn, answers questions for itself alone. It is an abstract address
// (unix(7)), so that there is one for each network namespace: that of a pod.
func OwnSocket(socket string) string {
	h := fnv.New128a()
	_, _ = h.Write([]byte(socket))
	return ownPrefix + hex.EncodeToString(h.Sum(nil))
}

// AskOwn is [Ask] of the flex2csi of this network namespace, whether or not it
// is the one that serves the socket now. If there is none, that one is asked, but
// only if this PID namespace has it: by hand. Who asks in a pod would hear that
// all is well of the daemon in another one, while that of its own does not come
// up.
func AskOwn(ctx context.Context, socket, kind string, timeout time.Duration) (json.RawMessage, error) {
	document, err := Ask(ctx, OwnSocket(socket), kind, timeout)
	if !IsAbsent(err) || socket == "" {
		return document, err
	}
	r := newQuestion(kind, timeout)
	r.own = true
	return ask(ctx, socket, r)
}
