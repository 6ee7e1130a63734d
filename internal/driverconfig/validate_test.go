package driverconfig_test

import (
	"testing"

	"github.com/flex2csi/flex2csi/internal/driverconfig"
	"github.com/flex2csi/flex2csi/internal/volumelog"
	"github.com/flex2csi/flex2csi/internal/wire"
)

func TestDefaultSocket(t *testing.T) {
	if driverconfig.DefaultSocket != wire.DefaultSocket {
		t.Errorf("the daemon is called at %s, and listens at %s", driverconfig.DefaultSocket, wire.DefaultSocket)
	}
}

func TestLogToJournal(t *testing.T) {
	if driverconfig.LogJournal != volumelog.Journal {
		t.Errorf("the journal is called %q here and %q in package volumelog", driverconfig.LogJournal, volumelog.Journal)
	}
	c := driverconfig.Default(disk(), driverconfig.BackendLocal)
	c.Log.File = driverconfig.LogJournal
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
}
