package journal

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/flex2csi/flex2csi/internal/objects"
)

// label is on the ConfigMaps of the journal, volumeAnnotation has the name
// of the volume, which is too long for a label or a name.
const (
	label            = "flex2csi.io/migration"
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

// A Journal keeps records as ConfigMaps, one for each volume. It does not overwrite
// what another program has written since it was read.
type Journal struct {
	client    *objects.Client
	namespace string
	copies    directory
	writer    string
}

// New returns the journal in a namespace. dir gets the copies; empty: there are none.
func New(client *objects.Client, namespace, dir string) *Journal {
	return &Journal{client: client, namespace: namespace, copies: directory(dir), writer: rand.Text()}
}

// Namespace returns the namespace of the ConfigMaps.
func (j *Journal) Namespace() string { return j.namespace }

// ConfigMapName returns the name of the ConfigMap of a volume.
func ConfigMapName(volume string) string { return prefix + hash(volume) }

// get returns the ConfigMap of a volume; nil if there is none.
func (j *Journal) get(ctx context.Context, volume string) (*corev1.ConfigMap, error) {
	m, err := objects.ConfigMaps().Get(ctx, j.client, j.namespace, ConfigMapName(volume))
	if err != nil {
		return nil, fmt.Errorf("read the journal of PersistentVolume %s: %w", volume, err)
	}
	return m, nil
}

// Load returns the record of a volume; nil if there is none. An [UnreadError] says that it
// cannot be read, or is lost.
func (j *Journal) Load(ctx context.Context, volume string) (*Record, error) {
	m, err := j.get(ctx, volume)
	switch {
	case err != nil:
		return nil, err
	case m == nil:
		return nil, j.lost(volume)
	}
	r, err := j.decode(m)
	return r, unreadError(nil, err)
}

// lost is an error if a copy says that the migration is not finished, without a ConfigMap.
func (j *Journal) lost(volume string) error {
	name, err := fileName(volume)
	if err != nil {
		return err
	}
	l, err := j.copies.lostRecord(name)
	if l != nil && l.Record.Volume == volume {
		return unreadError([]*LostError{l})
	}
	return unreadError(nil, err)
}

// decode reads a ConfigMap. It must be the one of the volume.
func (j *Journal) decode(m *corev1.ConfigMap) (*Record, error) {
	r, err := decode([]byte(m.Data[recordKey]))
	if err == nil && ConfigMapName(r.Volume) != m.Name {
		err = fmt.Errorf("it is about volume %q, which has another one", r.Volume)
	}
	if err != nil {
		return nil, fmt.Errorf("ConfigMap %s/%s: %w; if its copy in the directory of the journal is right, kubectl replace -f that", j.namespace, m.Name, err)
	}
	r.ResourceVersion = m.ResourceVersion
	return r, nil
}

// List returns all records by the names of the volumes. An [UnreadError] is about single
// ones that cannot be read or are lost; the others are returned.
func (j *Journal) List(ctx context.Context) (all []*Record, err error) {
	maps, err := objects.ConfigMaps().List(ctx, j.client, j.namespace, metav1.ListOptions{LabelSelector: label + "=true"})
	if err != nil {
		return nil, fmt.Errorf("read the journal: %w", err)
	}
	var broken []error
	there := map[string]bool{}
	for _, m := range maps {
		r, err := j.decode(m)
		there[m.Name] = true
		if err != nil {
			broken = append(broken, err)
			continue
		}
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b *Record) int { return strings.Compare(a.Volume, b.Volume) })
	lost, unread := j.copies.lost(there)
	return all, unreadError(lost, append(broken, unread...)...)
}

// Save writes a record over the one that was read or written last, or as the first
// one, and then its copy. It returns when both are written for good. An error leaves the
// record's Sequence as it was; what was to be written may be there or not. It may be tried
// again, also with another content. ErrCopy: the one in the cluster is written for good.
func (j *Journal) Save(ctx context.Context, r *Record) error {
	n := r.next(time.Now())
	data, err := encode(n)
	if err == nil {
		err = j.put(ctx, n, data)
	}
	if err == nil {
		if err = j.copies.save(n.Volume, j.configMap(n, data)); err != nil {
			err = fmt.Errorf("%w: %w", ErrCopy, err)
		}
	}
	if err == nil && n.Sequence == 1 {
		if err = j.verify(ctx, n, data); err != nil {
			err = fmt.Errorf("%w: %w", ErrMaybe, err)
		}
	}
	if err != nil {
		return fmt.Errorf("write the journal of PersistentVolume %s: %w", n.Volume, err)
	}
	*r = *n
	return nil
}

// put writes a record as it is. What this program has written before, without
// hearing that it was done, is no conflict.
func (j *Journal) put(ctx context.Context, n *Record, data []byte) error {
	err := j.write(ctx, n, data)
	for try := 1; try < 3 && changedMeanwhile(err); try++ {
		there, e := j.get(ctx, n.Volume)
		switch {
		case e != nil:
			return e
		case there == nil: // another program has deleted it: it is written again
			n.ResourceVersion = ""
		case there.Annotations[writerAnnotation] != j.writer:
			return fmt.Errorf("ConfigMap %s/%s: %w", j.namespace, ConfigMapName(n.Volume), ErrConflict)
		default:
			n.ResourceVersion = there.ResourceVersion
		}
		err = j.write(ctx, n, data)
	}
	return err
}

// changedMeanwhile reports whether the ConfigMap was not what it was known to be.
func changedMeanwhile(err error) bool {
	is := objects.OutcomeOf(err)
	return is == objects.Conflict || is == objects.Exists || is == objects.Gone
}

// configMap returns the ConfigMap of a record.
func (j *Journal) configMap(n *Record, data []byte) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: j.namespace, Name: ConfigMapName(n.Volume),
			Labels:      map[string]string{label: "true", objects.ManagedByLabel: objects.ManagedBy},
			Annotations: map[string]string{volumeAnnotation: n.Volume, writerAnnotation: j.writer},
		},
		Data: map[string]string{recordKey: string(data)},
	}
}

// write makes one request.
func (j *Journal) write(ctx context.Context, n *Record, data []byte) error {
	m := j.configMap(n, data)
	m.ResourceVersion = n.ResourceVersion
	stored, err := j.request(ctx, m, len(data))
	if err != nil {
		return err
	}
	n.ResourceVersion = stored.GetResourceVersion()
	return nil
}

func (j *Journal) request(ctx context.Context, m *corev1.ConfigMap, size int) (*unstructured.Unstructured, error) {
	if m.ResourceVersion != "" {
		body, err := json.Marshal(m)
		if err != nil {
			return nil, err
		}
		return j.client.Patch(objects.Short(ctx), objects.ConfigMaps().Resource, j.namespace, m.Name, types.MergePatchType, body)
	}
	if size > maxRecord {
		return nil, fmt.Errorf("%w: %d KiB, and there is room for %d; remove big annotations of the volume or its claim", ErrTooBig, size>>10, maxRecord>>10)
	}
	object, err := objects.ToUnstructured(m)
	if err != nil {
		return nil, err
	}
	return j.client.Create(objects.Short(ctx), objects.ConfigMaps().Resource, object)
}

// verify compares the ConfigMap with what was written, before anything is done that needs it. The
// API server does that, by a patch that changes nothing: to send it takes more.
func (j *Journal) verify(ctx context.Context, n *Record, data []byte) error {
	test, err := json.Marshal([]map[string]string{{"op": "test", "path": "/data/" + recordKey, "value": string(data)}})
	if err != nil {
		return err
	}
	stored, err := j.client.Patch(objects.Short(ctx), objects.ConfigMaps().Resource, j.namespace, ConfigMapName(n.Volume), types.JSONPatchType, test)
	if err != nil {
		return fmt.Errorf("compare ConfigMap %s/%s with what was written: %w", j.namespace, ConfigMapName(n.Volume), err)
	}
	n.ResourceVersion = stored.GetResourceVersion()
	return nil
}

// BackUp keeps objects in the directory of the copies: persistentvolume, claim, pods, ….
// What is there already is not overwritten. A Secret is refused.
func (j *Journal) BackUp(volume string, objects [][]byte) error {
	return j.copies.backUp(volume, objects)
}
