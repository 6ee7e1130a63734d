package serve

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// SocketPath takes an endpoint apart: unix:///path, unix:/path or a path.
func SocketPath(endpoint string) (string, error) {
	path := strings.TrimPrefix(strings.TrimPrefix(endpoint, "unix:"), "//")
	if filepath.IsAbs(path) {
		return path, nil
	}
	return "", fmt.Errorf("endpoint %q: want unix:///path", endpoint)
}

// listenAt replaces a socket that a killed driver left behind, but not one with a
// listener.
func listenAt(path string) (net.Listener, error) {
	if isAnswered(path) {
		return nil, fmt.Errorf("socket %s: another driver listens there", path)
	}
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() == os.ModeSocket {
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("remove the socket of a driver that is gone: %w", err)
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return nil, fmt.Errorf("make a place for the socket: %w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o700); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// lastBreath is how long children of a driver that was killed may have its
// sockets: those that were being started, until they are something else.
const lastBreath = time.Second

func isAnswered(path string) bool {
	for start := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		conn, err := net.DialTimeout("unix", path, time.Second)
		if err != nil {
			return false
		}
		conn.Close()
		if time.Since(start) > lastBreath {
			return true
		}
	}
}
