package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"
)

// A Command is the program of a driver.
type Command struct {
	Name string
	// Usage is what help says before the flags.
	Usage string
	// Flags makes the flags.
	Flags func(*pflag.FlagSet)
	// Run checks what the flags say, and is the driver until ctx ends.
	Run func(ctx context.Context) error
}

// Main is the program: it ends when it is interrupted. It returns the exit
// status; what it has to say goes to w.
func (c Command) Main(args []string, w io.Writer) int {
	f := pflag.NewFlagSet(c.Name, pflag.ContinueOnError)
	f.SetOutput(w)
	f.SortFlags = false
	f.Usage = func() { fmt.Fprint(w, c.Usage, f.FlagUsages()) }
	c.Flags(f)
	err := f.Parse(args)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return 0
	case err == nil && f.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", f.Arg(0))
	case err == nil:
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		err = c.Run(ctx)
	}
	if err != nil {
		fmt.Fprintf(w, "%s: %v\n", c.Name, err)
		return 1
	}
	return 0
}
