package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"sigs.k8s.io/yaml"
)

// sumsFile has the checksums of all other files, as sha256sum --check reads them.
const sumsFile = "SHA256SUMS"

// writeDocuments writes what is about the files that are there.
func (r *release) writeDocuments() error {
	for _, write := range []func() error{r.writeKrew, r.writeProvenance, r.writeSums} {
		if err := write(); err != nil {
			return err
		}
	}
	return nil
}

func digest(file string) (string, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:]), nil
}

// writeKrew writes the manifest of the kubectl plugin
// (https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest/).
func (r *release) writeKrew() error {
	var all []any
	for _, p := range platforms() {
		file := r.archiveOf(p)
		sum, err := digest(file)
		if err != nil {
			return err
		}
		all = append(all, map[string]any{
			"selector": map[string]any{"matchLabels": map[string]string{"os": p.os, "arch": p.arch}},
			"uri":      repository + "/releases/download/" + r.version + "/" + filepath.Base(file),
			"sha256":   sum,
			"bin":      p.file("flex2csi"),
		})
	}
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
		"kind":       "Plugin",
		"metadata":   map[string]string{"name": "flex2csi"},
		"spec": map[string]any{
			"version": r.version, "homepage": repository, "platforms": all,
			"shortDescription": "Move FlexVolumes to CSI drivers",
			"description": "Runs FlexVolumes on CSI drivers, and replaces their PersistentVolumes with CSI ones\n" +
				"in place: the same claims, no copied data. Begin with: kubectl flex2csi migrate plan --help\n",
		},
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.dir, "flex2csi.yaml"), text, 0o644)
}

// writeProvenance writes what the files were made from and how
// (https://slsa.dev/spec/v1.0/provenance, in a statement of in-toto). It has no times and
// no machine, so that the same build gives the same bytes.
func (r *release) writeProvenance() error {
	files, err := os.ReadDir(r.dir)
	if err != nil {
		return err
	}
	var subjects []any
	for _, f := range files {
		sum, err := digest(filepath.Join(r.dir, f.Name()))
		if err != nil {
			return err
		}
		subjects = append(subjects, map[string]any{"name": f.Name(), "digest": map[string]string{"sha256": sum}})
	}
	text, err := json.MarshalIndent(map[string]any{
		"_type":         "https://in-toto.io/Statement/v1",
		"subject":       subjects,
		"predicateType": "https://slsa.dev/provenance/v1",
		"predicate": map[string]any{
			"buildDefinition": map[string]any{
				"buildType":          repository + "/blob/" + r.version + "/CONTRIBUTING.md",
				"externalParameters": map[string]string{"version": r.version},
				"internalParameters": map[string]string{"go": runtime.Version()},
				"resolvedDependencies": []any{
					map[string]any{"uri": "git+" + repository, "digest": map[string]string{"gitCommit": r.revision}},
				},
			},
			// Nothing isolates the build.
			"runDetails": map[string]any{"builder": map[string]string{"id": repository + "/blob/" + r.version + "/CONTRIBUTING.md#local"}},
		},
	}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.dir, "provenance.intoto.json"), append(text, '\n'), 0o644)
}

func (r *release) writeSums() error {
	files, err := os.ReadDir(r.dir)
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, f := range files {
		sum, err := digest(filepath.Join(r.dir, f.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "%s  %s\n", sum, f.Name())
	}
	return os.WriteFile(filepath.Join(r.dir, sumsFile), []byte(text.String()), 0o644)
}
