package driverconfig

import (
	"encoding/json"
	"fmt"
)

// Encode returns the configuration as the file's content. The configuration
// must be valid.
func (c *Configuration) Encode() ([]byte, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("encode configuration of %s: %w", c.Driver, err)
	}
	data, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode configuration of %s: %w", c.Driver, err)
	}
	return append(data, '\n'), nil
}
