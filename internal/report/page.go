package report

import (
	"crypto/sha256"
	_ "embed" // the parts of the page
	"encoding/base64"
	"fmt"
	"io"
	"strconv"
	"strings"

	"golang.org/x/net/html"
)

//go:embed page.css
var style string

//go:embed page.js
var script string

// page prints a report as one HTML file that loads nothing from elsewhere: facts, bar charts,
// notes and a table that can be filtered and sorted. The texts are nodes of a tree, which is
// escaped as a whole, and the file's policy allows no script but its own.
//
// It is no template. Templates call methods by their names, and so the linker would have to
// keep all exported methods of all types in flex2csi, the daemon, too: a fifth of its size
// and an eighth of its memory.
func (r *Report) page(out io.Writer) error {
	page := &html.Node{Type: html.DocumentNode}
	page.AppendChild(&html.Node{Type: html.DoctypeNode, Data: "html"})
	element("html", attribute("lang", "en"), r.head(), r.body())(page)
	return html.Render(out, page)
}

// source allows the text of one element, by its digest.
func source(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// A part of an element adds itself to it.
type part func(*html.Node)

func element(name string, parts ...part) part {
	return func(parent *html.Node) {
		n := &html.Node{Type: html.ElementNode, Data: name}
		for _, add := range parts {
			add(n)
		}
		parent.AppendChild(n)
	}
}

func attribute(key, value string) part {
	return func(n *html.Node) { n.Attr = append(n.Attr, html.Attribute{Key: key, Val: value}) }
}

func text(s string) part {
	return func(n *html.Node) { n.AppendChild(&html.Node{Type: html.TextNode, Data: s}) }
}

func each[T any](all []T, of func(T) part) part {
	return func(n *html.Node) {
		for _, one := range all {
			of(one)(n)
		}
	}
}

// optional is an element with a text, unless that is empty.
func optional(name, s string, parts ...part) part {
	if s == "" {
		return nothing
	}
	return element(name, append(parts, text(s))...)
}

func nothing(*html.Node) {}

func (r *Report) head() part {
	meta := func(key, name, content string) part {
		return element("meta", attribute(key, name), attribute("content", content))
	}
	return element("head",
		element("meta", attribute("charset", "utf-8")),
		meta("http-equiv", "Content-Security-Policy", "default-src 'none'; style-src "+source(style)+"; script-src "+source(script)),
		meta("name", "viewport", "width=device-width, initial-scale=1"),
		meta("name", "color-scheme", "light dark"),
		element("title", text(r.Title)),
		element("style", text(style)),
	)
}

func (r *Report) body() part {
	return element("body",
		element("header", element("h1", text(r.Title)), element("p", text(r.Subtitle))),
		element("main", r.facts(), r.charts(), each(r.Sections, Section.part)),
		element("script", text(script)),
	)
}

func (r *Report) facts() part {
	if len(r.Facts) == 0 {
		return nothing
	}
	return element("dl", attribute("class", "facts"), each(r.Facts, func(f Fact) part {
		return element("div", element("dt", text(f.Name)), element("dd", text(f.Value)))
	}))
}

func (r *Report) charts() part {
	if len(r.Charts) == 0 {
		return nothing
	}
	return element("div", attribute("class", "charts"), each(r.Charts, Chart.part))
}

func (c Chart) part() part {
	if len(c.Bars) == 0 {
		return nothing
	}
	row := func(b Bar, drawn part) part {
		return element("tr",
			element("th", attribute("scope", "row"), text(b.Name)),
			element("td", drawn),
			element("td", text(strconv.Itoa(b.Count))))
	}
	others := part(nothing)
	if c.Others != nil {
		others = row(*c.Others, nothing)
	}
	return element("section", element("h2", text(c.Title)), element("table", attribute("class", "chart"),
		element("tbody", each(c.Bars, func(b Bar) part { return row(b, c.bar(b)) }), others)))
}

func (c Chart) bar(b Bar) part {
	return element("svg", attribute("width", "100%"), attribute("height", "12"), attribute("aria-hidden", "true"),
		element("rect", attribute("width", c.width(b)), attribute("height", "12"), attribute("rx", "2")))
}

func (s Section) part() part {
	return func(parent *html.Node) {
		if len(s.Notes) > 0 {
			optional("h2", strings.TrimSuffix(s.Heading, ":"))(parent)
		}
		each(s.Notes, Note.part)(parent)
		if s.Rows != nil {
			s.Rows.part(parent)
		}
	}
}

func (n Note) part() part {
	return element("div", attribute("class", "note"),
		element("p", text(n.Text)),
		optional("p", n.Next, attribute("class", "do")),
		optional("pre", n.Command),
		each(n.Notes, Note.part))
}

// longest is how many bytes a cell has that is not broken into lines: names with an UID fit.
const longest = 48

func (t *Rows) part(parent *html.Node) {
	heading := func(name string) part {
		return element("th", attribute("scope", "col"), element("button", attribute("type", "button"), text(name)))
	}
	cell := func(s string) part {
		if len(s) > longest {
			return element("td", attribute("class", "long"), text(s))
		}
		return element("td", text(s))
	}
	count, body := 0, &html.Node{Type: html.ElementNode, Data: "tbody"}
	for cells := range t.All {
		count++
		element("tr", each(cells, cell))(body)
	}
	if count == 0 {
		return
	}
	element("h2", text("All of them"))(parent)
	element("p",
		element("label", text("Filter "), element("input", attribute("id", "filter"), attribute("type", "search"),
			attribute("placeholder", "words that a row has"), attribute("autocomplete", "off"))),
		text(" "),
		element("output", attribute("id", "shown"), text(fmt.Sprintf("%d of %[1]d", count))))(parent)
	element("div", attribute("class", "wide"), attribute("tabindex", "0"), element("table", attribute("id", "rows"),
		element("thead", element("tr", each(t.Columns, heading))),
		func(table *html.Node) { table.AppendChild(body) }))(parent)
}
