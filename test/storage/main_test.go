package storage_test

import (
	"os"
	"testing"

	"github.com/flex2csi/flex2csi/test/csidriver/cli"
	"github.com/flex2csi/flex2csi/test/storage/driver"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// These make the test binary the CSI driver, or csidriver with its disk images.
const (
	envDriver = "FLEX_STORAGE_DRIVER"
	envImages = "FLEX_STORAGE_IMAGES"
)

func TestMain(m *testing.M) {
	if os.Getenv(envDriver) != "" {
		os.Exit(driver.Main(os.Args[1:], os.Stderr))
	}
	if os.Getenv(envImages) != "" {
		os.Exit(cli.Main(os.Args[1:], os.Stderr))
	}
	testenv.Main(m)
}
