package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/mapping"
	"github.com/flex2csi/flex2csi/internal/strict"
)

// defaultConfig is the default of --config.
const defaultConfig = "/etc/flex2csi/config.yaml"

func addConfig(set *pflag.FlagSet, path *string) {
	*path = defaultConfig
	set.Var(&configFlag{path: path}, "config", "BridgeConfiguration, a `file`; - is standard input")
}

// configFlag is the flag --config, which is given once: one of two files would be ignored.
type configFlag struct {
	path  *string
	given bool
}

// Set takes the path of the file.
func (f *configFlag) Set(path string) error {
	if f.given {
		return fmt.Errorf("given twice (%s as well): put all drivers into one file", *f.path)
	}
	*f.path, f.given = path, true
	return nil
}

func (f *configFlag) String() string {
	if f.path == nil {
		return ""
	}
	return *f.path
}

// Type implements pflag.Value.
func (f *configFlag) Type() string { return "string" }

// loadConfig reads and checks a configuration, expressions included.
func loadConfig(l bridgeconfig.Loader, path string, env environment) (*bridgeconfig.Configuration, error) {
	c, err := readConfig(l, path, env.in)
	if invalid, ok := errors.AsType[*strict.InvalidError](err); ok {
		return nil, listFaults(path, invalid)
	}
	return c, err
}

func readConfig(l bridgeconfig.Loader, path string, in io.Reader) (*bridgeconfig.Configuration, error) {
	if path != "-" {
		return l.Load(path, mapping.Check)
	}
	data, err := bridgeconfig.Read(in)
	if err != nil {
		return nil, fmt.Errorf("read configuration from standard input: %w", err)
	}
	return l.Decode(data, mapping.Check)
}

// configText returns the text of a valid configuration; empty without a path.
func configText(path string, env environment) (string, error) {
	if path == "" {
		return "", nil
	}
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return "", fmt.Errorf("read configuration: %w", err)
		}
		defer file.Close()
		env.in = file
	}
	data, err := bridgeconfig.Read(env.in)
	if err != nil {
		return "", fmt.Errorf("read configuration %s: %w", path, err)
	}
	_, err = bridgeconfig.Loader{}.Decode(data, mapping.Check)
	if invalid, ok := errors.AsType[*strict.InvalidError](err); ok {
		return "", listFaults(path, invalid)
	}
	return string(data), err
}

// listFaults gives each fault a line.
func listFaults(path string, e *strict.InvalidError) error {
	if path == "-" {
		path = "standard input"
	}
	lines := make([]string, 0, len(e.Faults))
	for _, f := range e.Faults {
		lines = append(lines, "\n  "+f.String())
	}
	what := "one fault"
	if len(lines) > 1 {
		what = fmt.Sprintf("%d faults", len(lines))
	}
	return fmt.Errorf("configuration %s has %s%s", path, what, strings.Join(lines, ""))
}
