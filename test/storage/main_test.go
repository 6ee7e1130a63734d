package storage_test

import (
	"os"
	"testing"

	"github.com/flex2csi/flex2csi/internal/testenv"
	"github.com/flex2csi/flex2csi/test/storage/driver"
)

// envDriver makes the test binary the CSI driver.
const envDriver = "FLEX_STORAGE_DRIVER"

func TestMain(m *testing.M) {
	if os.Getenv(envDriver) != "" {
		os.Exit(driver.Main(os.Args[1:], os.Stderr))
	}
	testenv.Main(m)
}
