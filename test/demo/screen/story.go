package screen

import (
	"errors"
	"fmt"
)

// A Story is told step by step. The first step that fails is shown, and the following
// ones do nothing, so that the parts of a story need no error handling.
type Story struct {
	*Screen
	// Short shortens what goes wrong for people; nil: it is shown as it is.
	Short func(string) string
	// Failed is what has gone wrong; nil: nothing.
	Failed error
	// Seen counts the checks that held.
	Seen int

	parts  int
	begins bool // a part, with a line left blank
}

// Fail ends the story.
func (t *Story) Fail(format string, args ...any) {
	if t.Failed != nil {
		return
	}
	t.Failed = fmt.Errorf(format, args...)
	shown := t.Failed
	if t.Short != nil {
		shown = errors.New(t.Short(shown.Error()))
	}
	t.Wrong(shown)
}

// Part begins a part.
func (t *Story) Part(title string) {
	if t.Failed == nil {
		t.parts++
		t.Heading(t.parts, title)
		t.begins = true
	}
}

// Scene begins what belongs together with a sentence.
func (t *Story) Scene(text string) {
	if t.Failed != nil {
		return
	}
	if !t.begins {
		t.Line("")
	}
	t.begins = false
	t.Say(text)
}

// Verify shows a check that held, or ends the story.
func (t *Story) Verify(err error, what, format string, args ...any) {
	switch {
	case t.Failed != nil:
	case err != nil:
		t.Fail("%s: %w", what, err)
	default:
		t.Seen++
		t.Check(what, fmt.Sprintf(format, args...))
	}
}
