module github.com/flex2csi/flex2csi/hack/release

go 1.26.0

require (
	github.com/flex2csi/flex2csi/hack/image v0.0.0
	github.com/spf13/pflag v1.1.0
	golang.org/x/tools v0.49.0
	sigs.k8s.io/yaml v1.6.0
)

require (
	github.com/CycloneDX/cyclonedx-go v0.12.0 // indirect
	go.yaml.in/yaml/v2 v2.4.2 // indirect
	golang.org/x/mod v0.39.0 // indirect
	golang.org/x/sync v0.22.0 // indirect
)

replace github.com/flex2csi/flex2csi/hack/image => ../image
