package driverconfig_test

import (
	"testing"

	"github.com/flex2csi/flex2csi/internal/calllog"
	"github.com/flex2csi/flex2csi/internal/driverconfig"
)

func TestLogToJournal(t *testing.T) {
	if driverconfig.LogJournal != calllog.Journal {
		t.Errorf("the journal is called %q here and %q in package calllog", driverconfig.LogJournal, calllog.Journal)
	}
	c := driverconfig.Default(disk(), driverconfig.BackendLocal)
	c.Log.File = driverconfig.LogJournal
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
}
