package hostfile

import (
	"errors"
	"io/fs"
)

const nonblock = 0

// checkOwner trusts no file: what is checked is on nodes.
func checkOwner(fs.FileInfo) error {
	return errors.New("is on Windows, where its owner is not checked")
}
