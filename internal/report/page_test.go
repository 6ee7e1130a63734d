package report_test

import (
	"encoding/xml"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flex2csi/flex2csi/internal/report"
	"github.com/flex2csi/flex2csi/test/testenv"
)

const hostile = `</td></script><script>parent.hacked = 1</script><img src=x onerror="parent.hacked=1">'"`

func made(rows int) *report.Report {
	numbers := make([]int, rows)
	for i := range numbers {
		numbers[i] = i
	}
	return &report.Report{
		Title: "A report " + hostile, Subtitle: hostile,
		Facts:  []report.Fact{{Name: hostile, Value: hostile}},
		Charts: []report.Chart{count(hostile, hostile, "b", "b")},
		Sections: []report.Section{
			{Heading: hostile, Notes: []report.Note{{Text: hostile, Next: hostile, Command: hostile, Notes: report.Notes(hostile)}}},
			{Rows: report.Of(numbers, func(i int) []string {
				return []string{fmt.Sprintf("pvc-%05d-0f2d8c1e-7a5b-4c1a-9e55-1a2b3c4d5e6f", i), fmt.Sprint((i * 7) % rows), []string{"=1+1", "\ttab", ""}[i%3], hostile}
			}, "Name", "Pods", "More", hostile)},
		},
	}
}

func count(title string, texts ...string) report.Chart {
	return report.Count(title, texts, func(text string) []string { return []string{text} })
}

func render(t *testing.T, view report.View, rows int) string {
	t.Helper()
	var b strings.Builder
	if err := made(rows).Write(&b, view); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestCount(t *testing.T) {
	got := count("c", "b", "a", "", "a", "c")
	if diff := cmp.Diff(report.Chart{Title: "c", Bars: []report.Bar{{Name: "a", Count: 2}, {Name: "b", Count: 1}, {Name: "c", Count: 1}}}, got); diff != "" {
		t.Error(diff)
	}
	var page strings.Builder
	got.Bars = append(got.Bars, report.Bar{Name: "none"})
	if err := (&report.Report{Charts: []report.Chart{got}}).Write(&page, report.Page); err != nil {
		t.Fatal(err)
	}
	for _, width := range []string{"100.0%", "50.0%", "0%"} {
		if !strings.Contains(page.String(), `<rect width="`+width+`"`) {
			t.Errorf("no bar of %s in %s", width, page.String())
		}
	}
	var many []string
	for i := range 20 {
		many = append(many, fmt.Sprint(i), fmt.Sprint(i))
	}
	got = count("c", many...)
	if diff := cmp.Diff(&report.Bar{Name: "8 others", Count: 16}, got.Others); diff != "" || len(got.Bars) != 12 {
		t.Errorf("%d bars, others %s", len(got.Bars), diff)
	}
}

// TestPage: the page is well-formed, refers to nothing, and has one script and one style,
// whatever its texts are.
func TestPage(t *testing.T) {
	page := render(t, report.Page, 3)
	d := xml.NewDecoder(strings.NewReader(page))
	d.Strict, d.AutoClose, d.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
	count := map[string]int{}
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		start, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		count[start.Name.Local]++
		for _, a := range start.Attr {
			if name := a.Name.Local; name == "src" || name == "href" || name == "style" || strings.HasPrefix(name, "on") {
				t.Errorf("<%s> has %s=%q", start.Name.Local, name, a.Value)
			}
		}
	}
	if diff := cmp.Diff([]int{1, 1, 0, 1, 6}, []int{count["script"], count["style"], count["img"], count["title"], count["tr"]}); diff != "" {
		t.Errorf("scripts, styles, images, titles, rows: %s", diff)
	}
	if found := regexp.MustCompile(`https?:|url\(|@import`).FindAllString(page, -1); found != nil {
		t.Errorf("the page refers to others: %q", found)
	}
	if !strings.Contains(page, `content="default-src &#39;none&#39;; style-src &#39;sha256-`) {
		t.Error("the page has no policy")
	}
}

// driver is a page that uses the report in a frame of a phone's width.
const driver = `<!DOCTYPE html><pre id="result"></pre><iframe width="390" height="844" src="/report"></iframe><script>
document.querySelector('iframe').onload = e => {
  const w = e.target.contentWindow, d = w.document, first = () => d.querySelector('#rows tbody tr:not([hidden])').cells[1].textContent
  const lines = [], say = (name, value) => lines.push(name + ' ' + value)
  say('background', w.getComputedStyle(d.body).backgroundColor)
  say('too wide', d.documentElement.scrollWidth > 390)
  say('loaded', w.performance.getEntriesByType('resource').length)
  say('hacked', window.hacked ?? 'no')
  say('bar', d.querySelector('.chart rect').getBoundingClientRect().width > 20)
  const pods = d.querySelectorAll('#rows button')[1]
  pods.click(); say('ascending', first())
  pods.click(); say('descending', first())
  const filter = d.getElementById('filter')
  filter.value = 'PVC-00001 0f2d'; filter.dispatchEvent(new w.Event('input'))
  say('filtered', d.getElementById('shown').textContent)
  say('first', first())
  document.getElementById('result').textContent = lines.join('\n')
}
</script>`

// TestBrowser looks at the page in a headless browser.
func TestBrowser(t *testing.T) {
	testenv.Need(t, "prog:chromium")
	for scheme, background := range map[string]string{"0": "rgb(13, 17, 23)", "1": "rgb(255, 255, 255)"} { // dark, light
		for _, rows := range []int{5, 5000} {
			t.Run(fmt.Sprintf("%s/%d", scheme, rows), func(t *testing.T) {
				page := render(t, report.Page, rows)
				server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Content-Type", "text/html")
					if r.URL.Path == "/report" {
						_, _ = io.WriteString(w, page)
						return
					}
					_, _ = io.WriteString(w, driver)
				}))
				defer server.Close()
				out, err := exec.CommandContext(t.Context(), "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
					"--user-data-dir="+t.TempDir(), "--blink-settings=preferredColorScheme="+scheme, "--virtual-time-budget=60000", "--dump-dom", server.URL).Output()
				if err != nil {
					t.Fatal(err)
				}
				_, result, _ := strings.Cut(string(out), `<pre id="result">`)
				result, _, _ = strings.Cut(result, "</pre>")
				want := fmt.Sprintf("background %s\ntoo wide false\nloaded 0\nhacked no\nbar true\nascending 0\ndescending %d\nfiltered 1 of %d\nfirst %d", background, rows-1, rows, 7%rows)
				if diff := cmp.Diff(want, html.UnescapeString(result)); diff != "" {
					t.Error(diff)
				}
			})
		}
	}
}
