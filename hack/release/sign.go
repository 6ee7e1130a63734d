package main

import (
	"context"
	"path/filepath"
)

// sign signs the checksums with an SSH key, of an agent as well (SHA256SUMS.sig). The
// namespace file is the one that ssh-keygen(1) names for files.
func (r *release) sign(ctx context.Context, key string) error {
	if key == "" {
		return nil
	}
	key, err := filepath.Abs(key)
	if err != nil {
		return err
	}
	_, err = command(ctx, r.dir, "ssh-keygen", "-Y", "sign", "-f", key, "-n", "file", sumsFile)
	return err
}
