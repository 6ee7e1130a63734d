package report_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flex2csi/flex2csi/internal/report"
)

// TestText: each block has a blank line before it, and no text of an object forges a line or
// moves the cursor.
func TestText(t *testing.T) {
	r := &report.Report{Sections: []report.Section{
		{Notes: report.Notes("first")},
		{Rows: report.Of([]string{"a", "", "b\n\x1b[2J\tc"}, func(s string) []string { return []string{s, "x"} }, "Name", "Long name")},
		{Heading: "Steps:", Numbered: true, Notes: []report.Note{{Text: "one", Command: "a &&\nb"}, {Text: "two\nlines", Next: "go on", Notes: report.Notes("below")}}},
		{Notes: report.Notes("alone", "apart")},
		{Lines: true, Notes: report.Notes("a sum", "of lines")},
		{Width: 20, Notes: []report.Note{{Text: "words that are wrapped at spaces", Notes: report.Notes("/a/path/that/is/never/broken it is")}}},
	}}
	var b strings.Builder
	if err := r.Write(&b, report.Table); err != nil {
		t.Fatal(err)
	}
	const want = `first

NAME           LONG NAME
a              x
-              x
b \u001b[2J c  x

Steps:
  1. one
      a &&
      b
  2. two lines
    below
    → go on

alone

apart

a sum
of lines

words that are
    wrapped at
    spaces
  /a/path/that/is/never/broken
      it is
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestCSV: no cell is a formula, and empty ones stay empty.
func TestCSV(t *testing.T) {
	got := render(t, report.CSV, 3)
	if !strings.HasPrefix(got, "Name,Pods,More,") || !strings.Contains(got, ",'=1+1,") || !strings.Contains(got, ",'\ttab,") || strings.Count(got, ",,") != 1 {
		t.Error(got)
	}
}

// TestItems: what is written item by item is the document with all of them, and the error of an
// item is not lost.
func TestItems(t *testing.T) {
	type document struct {
		Kind  string              `json:"kind"`
		Empty []string            `json:"empty"`
		Items []map[string]string `json:"items"`
	}
	for _, encode := range []func(any) ([]byte, error){report.JSON, report.YAML} {
		for _, items := range [][]map[string]string{{}, {{"a": "1", "b": "x\ny"}}, {{"a": "[]"}, {"a": "\x1b"}}} {
			head, err := encode(document{"K", []string{}, []map[string]string{}})
			if err != nil {
				t.Fatal(err)
			}
			want, _ := encode(document{"K", []string{}, items})
			var got strings.Builder
			err = report.Items(&got, head, func(yield func([]byte, error) bool) {
				for _, item := range items {
					if !yield(encode(item)) {
						return
					}
				}
			})
			if err != nil || len(items) > 0 && got.String() != string(want) {
				t.Errorf("%v, got\n%s\nwant\n%s", err, got.String(), want)
			}
		}
	}
	head, _ := report.JSON(document{"K", nil, []map[string]string{}})
	bad := errors.New("bad")
	if err := report.Items(&strings.Builder{}, head, func(yield func([]byte, error) bool) { yield(nil, bad) }); !errors.Is(err, bad) {
		t.Error(err)
	}
}
