package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/flex2csi/flex2csi/internal/hostfile"
)

// backupDir is where the objects are.
const backupDir = "backup"

// backUp writes objects into backup/VOLUME, each as the API server has sent it. A file
// that is there and holds something else, of a migration before, stays; the new one gets
// a number.
func (d directory) backUp(volume string, objects [][]byte) error {
	name, err := fileName(volume)
	if err != nil || d == "" {
		return err
	}
	for _, object := range objects {
		if err := backUp(filepath.Join(string(d), backupDir, name), object); err != nil {
			return fmt.Errorf("back up what goes with volume %s: %w", volume, err)
		}
	}
	return nil
}

func backUp(dir string, object []byte) error {
	name, err := backupName(object)
	if err != nil {
		return err
	}
	if err := hostfile.MakeDir(dir); err != nil {
		return err
	}
	path := filepath.Join(dir, name+recordSuffix)
	for n := 2; ; n++ {
		there, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return hostfile.WriteFile(path, object)
		}
		if err != nil || bytes.Equal(there, object) {
			return err
		}
		path = filepath.Join(dir, fmt.Sprintf("%s-%d%s", name, n, recordSuffix))
	}
}

// backupName returns the name of an object's files, such as persistentvolume or pod-web-0.
func backupName(object []byte) (string, error) {
	var o struct {
		Kind     string `json:"kind"`
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(object, &o); err != nil {
		return "", err
	}
	if strings.HasSuffix(o.Kind, "List") || o.Metadata.Name == "" {
		return "", fmt.Errorf("a %q is not one object", o.Kind)
	}
	switch o.Kind {
	case "":
		return "", errors.New("an object without a kind")
	case "Secret":
		return "", errors.New("secrets are not backed up")
	case "PersistentVolume": // one for each directory
		return "persistentvolume", nil
	case "PersistentVolumeClaim":
		return "claim", nil
	}
	const longest = 200
	name := strings.ToLower(o.Kind) + "-" + o.Metadata.Name
	if strings.ContainsAny(name, "/\x00") {
		return "", fmt.Errorf("%q is no name of an object", o.Metadata.Name)
	}
	if len(name) > longest {
		name = fmt.Sprintf("%s-%s", name[:longest], hash(name))
	}
	return name, nil
}
