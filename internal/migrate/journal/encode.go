package journal

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"
)

// maxTrouble bounds an error that is written down.
const maxTrouble = 2000

// next is the record as it is to be saved.
func (r *Record) next(now time.Time) *Record {
	n := *r
	n.APIVersion, n.Kind = apiVersion, kind
	n.Sequence++
	if n.Begun.IsZero() {
		n.Begun = now.UTC()
	}
	if len(n.Trouble) > maxTrouble {
		n.Trouble = string(bytes.ToValidUTF8([]byte(n.Trouble[:maxTrouble]), nil)) + "…"
	}
	return &n
}

// encode is the record on one line, with its digest. The objects in it stay as they
// are, but for white space.
func encode(r *Record) ([]byte, error) {
	data, err := marshal(r)
	if err != nil {
		return nil, err
	}
	n := *r
	if n.Digest, err = digest(data); err != nil {
		return nil, err
	}
	return marshal(&n)
}

func marshal(r *Record) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(r)
	return b.Bytes(), err
}

// digest returns the digest of all else that a record says, however that is written.
func digest(data []byte) (string, error) {
	var record map[string]any
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode(&record); err != nil {
		return "", err
	}
	delete(record, "digest")
	text, err := json.Marshal(record)
	return fmt.Sprintf("sha256:%x", sha256.Sum256(text)), err
}

// decode reads a record that is what was written. Releases before the digest wrote none.
func decode(data []byte) (*Record, error) {
	r := &Record{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	if r.APIVersion != apiVersion || r.Kind != kind {
		return nil, fmt.Errorf("it is a %q of %q, and this program reads %s of %s; go on with the release of flex2csi that has written it", r.Kind, r.APIVersion, kind, apiVersion)
	}
	is, err := digest(data)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	if r.Digest != "" && r.Digest != is {
		return nil, fmt.Errorf("%w: its digest is not that of what it says: it was changed by another program or by hand", ErrUnreadable)
	}
	r.Digest = ""
	if err := r.known(); err != nil {
		return nil, err
	}
	for _, object := range []*json.RawMessage{&r.Flex, &r.CSI, &r.ClaimObject, &r.To} {
		if *object == nil {
			continue
		}
		var b bytes.Buffer
		if err := json.Compact(&b, *object); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
		}
		*object = b.Bytes()
	}
	return r, nil
}
