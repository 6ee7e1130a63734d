package strict_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/flex2csi/flex2csi/internal/strict"
)

// read reads a value as encoding/json does into an any, but for numbers.
func read(value string) any {
	switch strict.KindOf(value) {
	case strict.Object:
		object := map[string]any{}
		for _, m := range strict.Members(value) {
			object[m.Key] = read(m.Value)
		}
		return object
	case strict.Array:
		array := []any{}
		for _, item := range strict.Elements(value) {
			array = append(array, read(item))
		}
		return array
	case strict.String:
		return strict.Unquote(value)
	case strict.Bool:
		return value == "true"
	case strict.Null:
		return nil
	default:
		return json.Number(value)
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

// FuzzMembers compares with encoding/json.
func FuzzMembers(f *testing.F) {
	for _, text := range []string{
		`{}`, `[]`, `""`, `0`, `-1.5e+3`, `true`, `false`, `null`, ``, ` `, `{`, `{"a"}`, `[1,]`, `"\`, `nul`, `{} {}`,
		`{"a":"b","c":{"d":[1,2,[],{}]},"e":null}`, " {\t\"a\" :\r\n[ 1 , 2 ] , \"b\" : true } ",
		`"\"\\\/\b\f\n\r\tA\ud83d\ude00\ud800"`, `{"\"":"\\","a\\":"]}"}`, `"ä日😀"`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		want, err := decode(data)
		checkErr := strict.CheckJSON(data)
		if syntax, ok := errors.AsType[*json.SyntaxError](checkErr); checkErr != nil && (!ok || syntax.Offset < 0 || syntax.Offset > int64(len(data))) {
			t.Errorf("CheckJSON gives %v", checkErr)
		}
		if (checkErr == nil) != (err == nil) {
			t.Errorf("CheckJSON says %v, encoding/json %v", checkErr, err)
		}
		if checkErr != nil || !utf8.Valid(data) { // bytes that are no text become U+FFFD there
			return
		}
		if diff := cmp.Diff(read(string(bytes.TrimSpace(data))), want); diff != "" {
			t.Errorf("encoding/json reads it differently (-members +json):\n%s", diff)
		}
	})
}

// TestMembersTwice: a key that comes twice is there twice.
func TestMembersTwice(t *testing.T) {
	got := strict.Members(` { "a" : 1 , "a":[ 2, {"b": "}"} ]}`)
	if diff := cmp.Diff([]strict.Member{{"a", "1"}, {"a", `[ 2, {"b": "}"} ]`}}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func BenchmarkMembers(b *testing.B) {
	data := []byte(`{"kubernetes.io/fsType":"ext4","kubernetes.io/readwrite":"rw","kubernetes.io/pvOrVolumeName":"pv-1","image":"/srv/a.img","size":"1Gi"}`)
	b.ReportAllocs()
	for b.Loop() {
		if err := strict.CheckJSON(data); err != nil {
			b.Fatal(err)
		}
		for _, m := range strict.Members(string(data)) {
			_ = strict.Unquote(m.Value)
		}
	}
}
