package assess

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/flex2csi/flex2csi/internal/manifest"
)

// Manifests reads YAML or JSON as a stream. A document that is not valid is noted in
// Input.Unread; the others are read.
func Manifests(name string, r io.Reader, in *Input) error {
	buffered := bufio.NewReader(r)
	d := decoder{name: name, in: in}
	start, err := buffered.Peek(2)
	if err == nil && start[0] == '{' && start[1] != '{' { // not a template
		return d.json(manifest.JSON(buffered))
	}
	return d.yaml(buffered)
}

type decoder struct {
	name string
	line int // of the document
	in   *Input
}

func (d *decoder) unread(err error) {
	d.in.Unread = append(d.in.Unread, fmt.Sprintf("read %s, document at line %d: %v", d.name, max(d.line, 1), err))
}

// json reads JSON documents one after another.
func (d *decoder) json(r io.Reader) error {
	for documents := json.NewDecoder(r); ; {
		var one json.RawMessage
		err := documents.Decode(&one)
		if errors.Is(err, io.EOF) {
			return nil
		}
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) || errors.Is(err, io.ErrUnexpectedEOF) {
			d.unread(err)
			return nil
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", d.name, err)
		}
		d.object(one)
	}
}

// yaml cuts YAML into documents, and a list as kubectl prints it into its items, which are
// parsed one by one: a parser needs many times the memory of the text.
func (d *decoder) yaml(r *bufio.Reader) error {
	var document, item bytes.Buffer
	inItems, start, itemStart := false, 1, 1
	flush := func(b *bytes.Buffer, line int) {
		if d.line = line; len(bytes.TrimSpace(b.Bytes())) > 0 {
			d.document(b.Bytes())
		}
		b.Reset()
	}
	for number := 1; ; number++ {
		line, err := r.ReadBytes('\n')
		switch text := bytes.TrimRight(line, " \t\r\n"); {
		case bytes.HasPrefix(line, []byte("---")) && (len(text) == 3 || text[3] == ' '):
			flush(&item, itemStart)
			flush(&document, start)
			inItems, start = false, number+1
			document.Write(text[3:]) // --- # a comment
			document.WriteByte('\n')
		case inItems && bytes.HasPrefix(line, []byte("- ")):
			flush(&item, itemStart)
			itemStart = number
			item.WriteString("  ")
			item.Write(line[2:])
		case inItems && item.Len() > 0 && (len(text) == 0 || line[0] == ' '):
			item.Write(line)
		default:
			flush(&item, itemStart)
			inItems = string(text) == "items:"
			document.Write(line)
		}
		if errors.Is(err, io.EOF) {
			flush(&item, itemStart)
			flush(&document, start)
			return nil
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", d.name, err)
		}
	}
}

func (d *decoder) document(text []byte) {
	data, err := yaml.YAMLToJSON(text)
	if err != nil {
		d.unread(fmt.Errorf("%w; render templates first, for example with helm template", err))
		return
	}
	d.object(data)
}

// object adds an object, or the items of a list. Other kinds are passed over.
func (d *decoder) object(data []byte) {
	var meta struct {
		metav1.TypeMeta
		Items []json.RawMessage `json:"items"`
	}
	if json.Unmarshal(data, &meta) != nil || meta.APIVersion == "" {
		return // some other document
	}
	for _, item := range meta.Items {
		d.object(item)
	}
	o := newObject(meta.TypeMeta)
	if o == nil {
		return
	}
	if err := json.Unmarshal(data, o); err != nil {
		d.unread(fmt.Errorf("%s: %w", meta.Kind, err))
		return
	}
	d.in.Add(o)
}

// newObject returns nil for a kind that does not matter. Of StorageClasses, CronJobs and
// workloads the beta versions have the same fields here.
func newObject(t metav1.TypeMeta) metav1.Object {
	switch group := t.GroupVersionKind().Group + "/" + t.Kind; group {
	case "/PersistentVolume":
		return &corev1.PersistentVolume{}
	case "/PersistentVolumeClaim":
		return &corev1.PersistentVolumeClaim{}
	case "/Pod":
		return &corev1.Pod{}
	case "/Node":
		return &corev1.Node{}
	case "/ReplicationController":
		return &corev1.ReplicationController{}
	case "storage.k8s.io/StorageClass":
		return &storagev1.StorageClass{}
	case "storage.k8s.io/CSIDriver":
		return &storagev1.CSIDriver{}
	case "apps/Deployment", "extensions/Deployment":
		return &appsv1.Deployment{}
	case "apps/StatefulSet":
		return &appsv1.StatefulSet{}
	case "apps/DaemonSet", "extensions/DaemonSet":
		return &appsv1.DaemonSet{}
	case "apps/ReplicaSet", "extensions/ReplicaSet":
		return &appsv1.ReplicaSet{}
	case "batch/Job":
		return &batchv1.Job{}
	case "batch/CronJob":
		return &batchv1.CronJob{}
	}
	return nil
}
