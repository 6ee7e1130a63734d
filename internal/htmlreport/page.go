package htmlreport

import (
	"fmt"
	"strconv"

	"golang.org/x/net/html"
)

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
		element("main", r.facts(), r.charts(), each(r.Notes, Note.part), r.Table.part()),
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
		element("rect", attribute("width", c.Width(b)), attribute("height", "12"), attribute("rx", "2")))
}

func (n Note) part() part {
	return func(parent *html.Node) {
		optional("h2", n.Heading)(parent)
		element("div", attribute("class", "note"),
			element("p", text(n.Text)),
			optional("p", n.Do, attribute("class", "do")),
			optional("pre", n.Command))(parent)
	}
}

// longest is how many bytes a cell has that is not broken into lines: names with an UID fit.
const longest = 48

func (t Table) part() part {
	if len(t.Rows) == 0 {
		return nothing
	}
	heading := func(name string) part {
		return element("th", attribute("scope", "col"), element("button", attribute("type", "button"), text(name)))
	}
	cell := func(s string) part {
		if len(s) > longest {
			return element("td", attribute("class", "long"), text(s))
		}
		return element("td", text(s))
	}
	return func(parent *html.Node) {
		element("h2", text("All of them"))(parent)
		element("p",
			element("label", text("Filter "), element("input", attribute("id", "filter"), attribute("type", "search"),
				attribute("placeholder", "words that a row has"), attribute("autocomplete", "off"))),
			text(" "),
			element("output", attribute("id", "shown"), text(fmt.Sprintf("%d of %[1]d", len(t.Rows)))))(parent)
		element("div", attribute("class", "wide"), attribute("tabindex", "0"), element("table", attribute("id", "rows"),
			element("thead", element("tr", each(t.Columns, heading))),
			element("tbody", each(t.Rows, func(row []string) part { return element("tr", each(row, cell)) }))))(parent)
	}
}
