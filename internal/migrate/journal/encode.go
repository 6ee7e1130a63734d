package journal

import (
	"bytes"
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

// saved takes over what next has set.
func (r *Record) saved(n *Record) {
	r.APIVersion, r.Kind, r.Begun, r.Sequence, r.Trouble = n.APIVersion, n.Kind, n.Begun, n.Sequence, n.Trouble
	r.Lagging = false
}

// after reports whether r was written after o. Of two that were written at once
// neither was.
func (r *Record) after(o *Record) bool {
	if !r.Begun.Equal(o.Begun) {
		return r.Begun.After(o.Begun)
	}
	return r.Sequence > o.Sequence
}

// encode is the record on one line. The objects in it stay as they are, but for
// white space.
func encode(r *Record) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(r); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// encodeForPeople is the same on many lines.
func encodeForPeople(r *Record) ([]byte, error) {
	data, err := encode(r)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := json.Indent(&b, data, "", "  "); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// decode reads both. Where says where it was, for errors. One that another
// release has written is not ErrUnreadable: an older one in the other place must
// not hold instead.
func decode(data []byte, volume, where string) (*Record, error) {
	r := &Record{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", where, ErrUnreadable, err)
	}
	if r.APIVersion != apiVersion || r.Kind != kind {
		return nil, fmt.Errorf("%s: it is a %q of %q, and this program reads %s of %s; go on with the release of flex2csi that has written it", where, r.Kind, r.APIVersion, kind, apiVersion)
	}
	if volume != "" && r.Volume != volume {
		return nil, fmt.Errorf("%s: it is about the volume %q, and should be about %q", where, r.Volume, volume)
	}
	for _, object := range []*json.RawMessage{&r.Flex, &r.CSI, &r.ClaimObject, &r.To} {
		if *object == nil {
			continue
		}
		var b bytes.Buffer
		if err := json.Compact(&b, *object); err != nil {
			return nil, fmt.Errorf("%s: %w: %w", where, ErrUnreadable, err)
		}
		*object = b.Bytes()
	}
	return r, nil
}
