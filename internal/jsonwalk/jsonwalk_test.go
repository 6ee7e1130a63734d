package jsonwalk_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/flex2csi/flex2csi/internal/jsonwalk"
)

// read reads a value as encoding/json does into an any, but for numbers.
func read(w *jsonwalk.Walker) any {
	switch w.Next() {
	case '{':
		object := map[string]any{}
		for key := range w.Members() {
			object[key] = read(w)
		}
		return object
	case '[':
		array := []any{}
		for i := range w.Items() {
			if i != len(array) {
				panic("wrong index")
			}
			array = append(array, read(w))
		}
		return array
	case '"':
		return w.String()
	}
	switch word := w.Word(); word {
	case "true", "false":
		return word == "true"
	case "null":
		return nil
	default:
		return json.Number(word)
	}
}

// decode is encoding/json with numbers as they are written.
func decode(data []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one value")
	}
	return v, nil
}

// FuzzWalk compares with encoding/json.
func FuzzWalk(f *testing.F) {
	for _, text := range []string{
		`{}`, `[]`, `""`, `0`, `-1.5e+3`, `true`, `false`, `null`, ``, ` `, `{`, `{"a"}`, `[1,]`, `"\`, `nul`, `{} {}`,
		`{"a":"b","c":{"d":[1,2,[],{}]},"e":null}`, " {\t\"a\" :\r\n[ 1 , 2 ] , \"b\" : true } ",
		`"\"\\\/\b\f\n\r\tA\ud83d\ude00\ud800"`, `{"\"":"\\","a\\":"]}"}`, `"ä日😀"`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		want, err := decode(data)
		checkErr := jsonwalk.Check(data)
		if syntax, ok := errors.AsType[*json.SyntaxError](checkErr); checkErr != nil && (!ok || syntax.Offset < 0 || syntax.Offset > int64(len(data))) {
			t.Errorf("Check gives %v", checkErr)
		}
		if (checkErr == nil) != (err == nil) {
			t.Errorf("Check says %v, encoding/json %v", checkErr, err)
		}
		if checkErr != nil || !utf8.Valid(data) { // bytes that are no text become U+FFFD there
			return
		}
		if diff := cmp.Diff(read(jsonwalk.Walk(string(data))), want); diff != "" {
			t.Errorf("encoding/json reads it differently (-walk +json):\n%s", diff)
		}
	})
}

// A loop over an object may end early.
func TestMembersBreak(t *testing.T) {
	w := jsonwalk.Walk(`{"a":1,"b":2}`)
	for key := range w.Members() {
		if key == "a" && w.Word() == "1" {
			break
		}
		t.Errorf("went on to %q", key)
	}
}

func BenchmarkWalk(b *testing.B) {
	data := []byte(`{"kubernetes.io/fsType":"ext4","kubernetes.io/readwrite":"rw","kubernetes.io/pvOrVolumeName":"pv-1","image":"/srv/a.img","size":"1Gi"}`)
	b.ReportAllocs()
	for b.Loop() {
		if err := jsonwalk.Check(data); err != nil {
			b.Fatal(err)
		}
		w := jsonwalk.Walk(string(data))
		for range w.Members() {
			_ = w.String()
		}
	}
}
