// Command driver is a FlexVolume driver that knows init only. It answers the
// capabilities of the configuration beside it, or a Failure if that is not
// whole. Tests append bytes to the program to make different executables of it.
package main

import (
	"encoding/json"
	"os"
	"path/filepath"
)

type answer struct {
	Status       string          `json:"status"`
	Message      string          `json:"message,omitempty"`
	Capabilities json.RawMessage `json:"capabilities,omitempty"`
}

func main() {
	reply, err := json.Marshal(initialize())
	if err != nil {
		os.Exit(1)
	}
	os.Stdout.Write(append(reply, '\n'))
}

func initialize() answer {
	data, err := os.ReadFile(filepath.Join(filepath.Dir(os.Args[0]), ".flexdriver.json"))
	if err != nil {
		return answer{Status: "Failure", Message: err.Error()}
	}
	var config struct{ Capabilities json.RawMessage }
	if err := json.Unmarshal(data, &config); err != nil {
		return answer{Status: "Failure", Message: err.Error()}
	}
	return answer{Status: "Success", Capabilities: config.Capabilities}
}
