package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
)

// watchOption is -w of kubectl.
type watchOption struct {
	watch bool
	every time.Duration
}

func (o *watchOption) add(c *cobra.Command, every time.Duration) {
	o.every = every
	c.Flags().BoolVarP(&o.watch, "watch", "w", false, "show it again whenever it has changed, until Ctrl-C")
}

// show calls do once, or until ctx ends. When something was shown, an error does not end it: the
// daemon may be replaced meanwhile.
func (o *watchOption) show(ctx context.Context, env environment, do func(context.Context, environment) error) error {
	if !o.watch {
		return do(ctx, env)
	}
	out, errs, said := &changes{to: env.out}, env.err, ""
	for env.out = out; ; {
		err := do(ctx, env)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // Ctrl-C is its end
		case out.before == "":
			return err
		case err == nil:
			said = ""
		case err.Error() != said:
			said = err.Error()
			fmt.Fprintln(errs, said)
		}
		env.err = io.Discard // notes are for the first time
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(o.every):
		}
	}
}

// changes writes documents that differ from the one before, on a terminal in its place.
type changes struct {
	to     io.Writer
	before string
}

func (w *changes) Write(document []byte) (int, error) {
	if string(document) == w.before {
		return len(document), nil
	}
	w.before = string(document)
	if canRedraw(w.to) {
		const home, clear = "\x1b[H", "\x1b[2J"
		if _, err := io.WriteString(unfiltered(w.to).(io.Writer), home+clear); err != nil {
			return 0, err
		}
	}
	return w.to.Write(document)
}

// Unwrap returns what is written to.
func (w *changes) Unwrap() io.Writer { return w.to }
