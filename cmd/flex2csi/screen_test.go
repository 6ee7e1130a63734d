package main

import (
	"io"
	"strings"
	"testing"
	"time"
)

// A held terminal takes a text when it is released.
type held struct {
	strings.Builder
	released chan struct{}
}

func (h *held) Write(text []byte) (int, error) {
	<-h.released
	return h.Builder.Write(text)
}

// TestScreen: Ctrl-S, or a pager on standard error, held a migration up where there was no
// PersistentVolume.
func TestScreen(t *testing.T) {
	terminal := &held{released: make(chan struct{})}
	s := newScreen(terminal)
	written := make(chan struct{})
	go func() {
		defer close(written)
		for range 3000 {
			_, _ = io.WriteString(s, "a line\n")
		}
	}()
	select {
	case <-written:
	case <-time.After(30 * time.Second):
		t.Fatal("it waits for the terminal")
	}
	close(terminal.released)
	s.close()
	if n := strings.Count(terminal.String(), "a line\n"); n < 1000 || n >= 3000 {
		t.Errorf("%d lines", n)
	}
	started := time.Now()
	s = newScreen(&held{released: make(chan struct{})})
	_, _ = io.WriteString(s, "a line\n")
	if s.close(); time.Since(started) > 20*time.Second {
		t.Error("it waits at its end")
	}
}
