package main

import (
	"bytes"
	"io"
	"time"
)

// A screen writes what people read while something else must not wait for them: a terminal
// that is held (Ctrl-S) or a pager at its first page takes no more. What does not fit is
// dropped. An error of a write is dropped as well.
type screen struct {
	texts       chan []byte
	over, ended chan struct{}
}

func newScreen(out io.Writer) *screen {
	s := &screen{texts: make(chan []byte, 1000), over: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		for over := s.over; over != nil || len(s.texts) > 0; {
			select {
			case text := <-s.texts:
				_, _ = out.Write(text)
			case <-over:
				over = nil
			}
		}
	}()
	return s
}

func (s *screen) Write(text []byte) (int, error) {
	select {
	case s.texts <- bytes.Clone(text):
	default:
	}
	return len(text), nil
}

// close writes the rest, and waits for that only for a moment.
func (s *screen) close() {
	close(s.over)
	select {
	case <-s.ended:
	case <-time.After(time.Second):
	}
}
