//go:build !linux

package doctor

import (
	"errors"
	"io"
)

var errNoNode = errors.New("nodes run Linux: this machine is none")

func (p *probe) nodeChecks() []check { return nil }

func (p *probe) askDaemon() (*daemonStatus, error) { return nil, errNoNode }

// AnswerMounts is for nodes.
func AnswerMounts(io.Reader, io.Writer) error { return errNoNode }
