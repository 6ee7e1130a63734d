package drivers_test

import (
	"reflect"
	"testing"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/csiclient"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/drivers"
	"github.com/flex2csi/flex2csi/internal/mapping"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// TestNew fails when a field is added that nothing sets: every one of the
// bridge's has to come from the configuration.
func TestNew(t *testing.T) {
	c := bridgeconfig.DefaultDriver()
	c.FlexDriver, c.CSIDriver = "example.com/disk", "disk.csi.example.com"
	c.Attach, c.FSGroup = bridgeconfig.AttachController, storagev1.FileFSGroupPolicy
	c.RepairInUse, c.Inline = true, true
	c.Secrets.ControllerPublish = &bridgeconfig.SecretSource{SecretRef: &bridgeconfig.SecretRef{Name: "attach", Namespace: "ns"}}
	c.Secrets.NodeStage = &bridgeconfig.SecretSource{FromFlexSecret: map[string]string{"a": "b"}}
	mappers, err := mapping.Compile(&bridgeconfig.Configuration{Drivers: []bridgeconfig.Driver{c}})
	if err != nil {
		t.Fatal(err)
	}
	cluster := newCluster()
	d := drivers.New(&c, mappers[0], drivers.Client(&c, "/var/lib/kubelet"), cluster, attacher{})

	value := reflect.ValueOf(*d)
	for i, field := range reflect.VisibleFields(value.Type()) {
		// The alternative to AttachSecret: TestAttachNeeds has it.
		if value.Field(i).IsZero() && field.Name != "AttachSecretsHere" {
			t.Errorf("nothing sets %s", field.Name)
		}
	}
	if v, err := d.Map(t.Context(), flex.Options{User: map[string]string{"volumeID": "x"}}); err != nil || v.Handle != "x" {
		t.Errorf("got %v, %v", v, err)
	}
}

func TestClient(t *testing.T) {
	c := bridgeconfig.DefaultDriver()
	c.CSIDriver = "disk.csi.example.com"
	client := drivers.Client(&c, t.TempDir())
	if client.Controller != nil {
		t.Error("there is a controller, and no controllerEndpoint")
	}
	if path, err := client.Node(t.Context()); err == nil {
		t.Errorf("found %s where nothing is registered", path)
	}
	c.Endpoint, c.ControllerEndpoint = "unix:///run/node.sock", "/run/controller.sock"
	client = drivers.Client(&c, t.TempDir())
	node, _ := client.Node(t.Context())
	controller, _ := client.Controller(t.Context())
	if node != "/run/node.sock" || controller != "/run/controller.sock" {
		t.Errorf("got %s and %s", node, controller)
	}
}

// TestRemoved: what a record says is enough to find the driver that it was set up by.
func TestRemoved(t *testing.T) {
	c := bridgeconfig.DefaultDriver()
	c.FlexDriver, c.CSIDriver = "example.com/disk", "disk.csi.example.com"
	c.Endpoint, c.ControllerEndpoint = "unix:///run/node.sock", "/run/controller.sock"
	mappers, err := mapping.Compile(&bridgeconfig.Configuration{Drivers: []bridgeconfig.Driver{c}})
	if err != nil {
		t.Fatal(err)
	}
	before := drivers.New(&c, mappers[0], drivers.Client(&c, t.TempDir()), nil, attacher{})
	r := drivers.Removed{KubeletDir: t.TempDir(), Attacher: attacher{}}
	d := r.Driver(before.Name, before.CSIDriver, *before.Endpoints)
	client, ok := d.Service.(*csiclient.Client)
	if !ok || client.Name != c.CSIDriver || d.Name != c.FlexDriver || d.CSIDriver != c.CSIDriver || d.Attacher == nil {
		t.Fatalf("got %+v", d)
	}
	node, _ := client.Node(t.Context())
	controller, _ := client.Controller(t.Context())
	if node != "/run/node.sock" || controller != "/run/controller.sock" {
		t.Errorf("got %s and %s", node, controller)
	}
	if r.Driver(before.Name, before.CSIDriver, *before.Endpoints) != d {
		t.Error("each call would make connections of its own")
	}
	if r.Driver(before.Name, before.CSIDriver, csivol.Endpoints{}) == d {
		t.Error("it is looked for elsewhere")
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}
