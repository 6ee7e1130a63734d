package handoff

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/flex2csi/flex2csi/internal/wire"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// Plan returns the steps of a callout. It does not call the daemon.
func (b *Backend) Plan(ctx context.Context, c *flex.Call) ([]string, error) {
	name, err := b.name(c)
	if err != nil {
		return nil, err
	}
	steps := []string{
		fmt.Sprintf("ask flex2csi at %s, for the driver %s: %s", b.socketFor(c.Command), name, strings.Join(shown(b.Argv), " ")),
		fmt.Sprintf("wait up to %v for its answer, which is the answer; flex2csi map shows what it asks the CSI driver for", daemonTimeout(ctx).Round(wire.DialBudget/2)),
	}
	if c.Command != flex.CommandUnmount {
		return append(steps, fmt.Sprintf("fail (%s) if no daemon listens there for %v", flex.CodeUnavailable, wire.DialBudget)), nil
	}
	p, err := b.placeOf(c.Dir)
	if err != nil {
		return nil, err
	}
	what := p.dir
	if p.targetPath != "" {
		what += " and " + p.targetPath
	}
	return append(steps,
		fmt.Sprintf("if no daemon listens there for %v: write a pending unmount to %s, which flex2csi completes when it runs again", wire.DialBudget, b.StateDir),
		fmt.Sprintf("and unmount what is at %s", what)), nil
}

// shown returns a callout without secrets.
func shown(argv []string) []string {
	var words []string
	for _, arg := range argv {
		var options map[string]string
		if json.Unmarshal([]byte(arg), &options) != nil {
			words = append(words, arg)
			continue
		}
		for key := range options {
			if strings.HasPrefix(key, flex.OptionSecretPrefix) {
				options[key] = "[redacted]"
			}
		}
		var text bytes.Buffer
		encoder := json.NewEncoder(&text)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(options); err != nil {
			text.Reset()
			text.WriteString("{…}")
		}
		words = append(words, strings.TrimSpace(text.String()))
	}
	return words
}
