package journal

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/flex2csi/flex2csi/internal/attachment"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// Label is that of the ConfigMaps of the journal, volumeAnnotation has the name
// of the volume, which is too long for a label or a name.
const (
	Label            = "flex2csi.io/migration"
	volumeAnnotation = "flex2csi.io/migration-volume"
)

const (
	// writerAnnotation tells one program's writes from another's.
	writerAnnotation = "flex2csi.io/migration-writer"
	recordKey        = "record.json"
	prefix           = "flex2csi-migration-"
	// maxRecord is how big a record may be when it is written for the first time.
	// A ConfigMap has room for 1 MiB (k8s.io/kubernetes/pkg/apis/core/types.go,
	// MaxSecretSize), and records grow a little.
	maxRecord = 900 << 10
)

// Cluster keeps records as ConfigMaps, one for each volume. It does not overwrite
// what somebody else has written since it was read.
type Cluster struct {
	client    *objects.Client
	namespace string
	writer    string

	mu sync.Mutex
	// versions are the resourceVersions of what was read or written last, by
	// volume.
	versions map[string]string
}

// NewCluster keeps records in a namespace.
func NewCluster(client *objects.Client, namespace string) *Cluster {
	return &Cluster{client: client, namespace: namespace, writer: rand.Text(), versions: map[string]string{}}
}

// ConfigMapName is that of a volume's record.
func ConfigMapName(volume string) string { return prefix + hash(volume) }

func (c *Cluster) known(volume string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.versions[volume]
}

func (c *Cluster) note(volume, version string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if version == "" {
		delete(c.versions, volume)
		return
	}
	c.versions[volume] = version
}

// get returns the ConfigMap of a volume; nil if there is none.
func (c *Cluster) get(ctx context.Context, volume string) (*corev1.ConfigMap, error) {
	m, err := objects.ConfigMaps().Get(ctx, c.client, c.namespace, ConfigMapName(volume))
	if err != nil {
		return nil, fmt.Errorf("read the journal of %s: %w", volume, err)
	}
	return m, nil
}

// Load returns the record of a volume; nil if there is none.
func (c *Cluster) Load(ctx context.Context, volume string) (*Record, error) {
	m, err := c.get(ctx, volume)
	if err != nil {
		return nil, err
	}
	if m == nil {
		c.note(volume, "")
		return nil, nil //nolint:nilnil // there is none
	}
	c.note(volume, m.ResourceVersion)
	return c.decode(m, volume)
}

func (c *Cluster) decode(m *corev1.ConfigMap, volume string) (*Record, error) {
	return decode([]byte(m.Data[recordKey]), volume, "ConfigMap "+c.namespace+"/"+m.Name)
}

// List returns all records, and an error for each ConfigMap that has none.
func (c *Cluster) List(ctx context.Context) ([]*Record, error) {
	all, broken, err := c.list(ctx)
	return all, errors.Join(append(slices.Collect(maps.Values(broken)), err)...)
}

// list returns the errors of ConfigMaps by their names.
func (c *Cluster) list(ctx context.Context) (all []*Record, broken map[string]error, err error) {
	maps, err := objects.ConfigMaps().List(ctx, c.client, c.namespace, metav1.ListOptions{LabelSelector: Label + "=true"})
	if err != nil {
		return nil, nil, fmt.Errorf("read the journal: %w", err)
	}
	broken = map[string]error{}
	for _, m := range maps {
		r, err := c.decode(m, "")
		if err == nil && ConfigMapName(r.Volume) != m.Name {
			err = fmt.Errorf("ConfigMap %s/%s: it is about volume %q, whose has another name", c.namespace, m.Name, r.Volume)
		}
		if err != nil {
			broken[m.Name] = err
			continue
		}
		c.note(r.Volume, m.ResourceVersion)
		all = append(all, r)
	}
	sortRecords(all)
	return all, broken, nil
}

// Save writes a record over the one that was read or written last, or as the
// first one.
func (c *Cluster) Save(ctx context.Context, r *Record) error {
	n := r.next(time.Now())
	if err := c.put(ctx, n); err != nil {
		return err
	}
	r.saved(n)
	return nil
}

// put writes a record as it is. What this program has written before, without
// hearing that it was done, is no conflict.
func (c *Cluster) put(ctx context.Context, n *Record) error {
	data, err := encode(n)
	if err != nil {
		return fmt.Errorf("write the journal of %s: %w", n.Volume, err)
	}
	stored, err := c.write(ctx, n, data)
	for try := 1; try < 3 && changedMeanwhile(err); try++ {
		there, e := c.get(ctx, n.Volume)
		switch {
		case e != nil:
			return e
		case there == nil: // somebody has deleted it: it is written again
			c.note(n.Volume, "")
		case there.Annotations[writerAnnotation] != c.writer:
			return fmt.Errorf("write the journal of %s: ConfigMap %s/%s: %w", n.Volume, c.namespace, ConfigMapName(n.Volume), ErrConflict)
		default:
			c.note(n.Volume, there.ResourceVersion)
		}
		stored, err = c.write(ctx, n, data)
	}
	if err != nil {
		return fmt.Errorf("write the journal of %s: %w", n.Volume, err)
	}
	c.note(n.Volume, stored.GetResourceVersion())
	return nil
}

// changedMeanwhile reports whether the ConfigMap was not what it was known to be.
func changedMeanwhile(err error) bool {
	is := objects.OutcomeOf(err)
	return is == objects.Conflict || is == objects.Exists || is == objects.Gone
}

// write makes one request.
func (c *Cluster) write(ctx context.Context, n *Record, data []byte) (*unstructured.Unstructured, error) {
	m := &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: c.namespace, Name: ConfigMapName(n.Volume), ResourceVersion: c.known(n.Volume),
			Labels:      map[string]string{Label: "true", attachment.ManagedByLabel: attachment.ManagedBy},
			Annotations: map[string]string{volumeAnnotation: n.Volume, writerAnnotation: c.writer},
		},
		Data: map[string]string{recordKey: string(data)},
	}
	first := m.ResourceVersion == ""
	if first && len(data) > maxRecord {
		return nil, fmt.Errorf("%w: %d KiB, and there is room for %d; the volume or its claim has big annotations", ErrTooBig, len(data)>>10, maxRecord>>10)
	}
	if first {
		object, err := objects.ToUnstructured(m)
		if err != nil {
			return nil, err
		}
		return c.client.Create(ctx, objects.ConfigMaps().Resource, object)
	}
	body, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	return c.client.Patch(ctx, objects.ConfigMaps().Resource, c.namespace, m.Name, types.MergePatchType, body)
}

// Verify compares a record that was saved with the ConfigMap.
func (c *Cluster) Verify(ctx context.Context, r *Record) error {
	want, err := encode(r)
	if err != nil {
		return err
	}
	m, err := c.get(ctx, r.Volume)
	if err != nil {
		return err
	}
	if m == nil || m.Data[recordKey] != string(want) {
		return fmt.Errorf("read the journal of %s back: ConfigMap %s/%s does not have what was written", r.Volume, c.namespace, ConfigMapName(r.Volume))
	}
	return nil
}

// BackUp does nothing: objects are backed up on the disk.
func (c *Cluster) BackUp(context.Context, string, [][]byte) error { return nil }
