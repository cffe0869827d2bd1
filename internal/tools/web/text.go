package web

import (
	"bytes"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
	"golang.org/x/net/html/charset"
)

// kindOf returns the media type of a body: as declared, else as it looks.
func kindOf(resp *http.Response, body []byte) string {
	declared := resp.Header.Get("Content-Type")
	if kind, _, err := mime.ParseMediaType(declared); err == nil {
		return kind
	}
	kind, _, _ := strings.Cut(http.DetectContentType(body), ";")
	return kind
}

func isText(kind string) bool {
	return strings.HasPrefix(kind, "text/") || strings.HasSuffix(kind, "+json") || strings.HasSuffix(kind, "+xml") ||
		kind == "application/json" || kind == "application/xml" || kind == "application/javascript" ||
		kind == "application/x-ndjson" || kind == "application/yaml" || kind == "application/toml"
}

// readable returns a body as text of at most about limit bytes, decoded from the
// charset it declares. ok is false if it is no text.
func readable(resp *http.Response, body []byte, limit int) (text string, ok bool) {
	kind := kindOf(resp, body)
	if !isText(kind) {
		return "", false
	}
	declared := resp.Header.Get("Content-Type")
	if kind != "text/html" && kind != "application/xhtml+xml" && !strings.Contains(strings.ToLower(declared), "charset") {
		return string(body), true // UTF-8 unless it says otherwise
	}
	decoded := body
	if r, err := charset.NewReader(bytes.NewReader(body), declared); err == nil {
		if all, err := io.ReadAll(r); err == nil {
			decoded = all
		}
	}
	if kind != "text/html" && kind != "application/xhtml+xml" {
		return string(decoded), true
	}
	root, err := html.Parse(bytes.NewReader(decoded))
	if err != nil {
		return string(decoded), true // nested beyond what the parser takes: as it is
	}
	p := page{base: resp.Request.URL, limit: limit}
	p.node(root, 0)
	return strings.TrimSpace(p.out.String()), true
}

// page turns a tree into text: blocks on lines of their own, headings with "#",
// list items with "-", links with their address. What a reader would not see
// (scripts, styles, hidden elements) is left out.
type page struct {
	base  *url.URL
	out   strings.Builder
	limit int
	pre   int  // depth of <pre>
	space bool // white space is due before the next word
}

const (
	maxNesting = 400
	maxLink    = 300 // bytes of an address that is shown
)

var unseen = map[atom.Atom]bool{
	atom.Script: true, atom.Style: true, atom.Noscript: true, atom.Template: true, atom.Svg: true, atom.Iframe: true,
	atom.Object: true, atom.Canvas: true, atom.Math: true, atom.Select: true, atom.Datalist: true,
}

var blocks = map[atom.Atom]bool{
	atom.P: true, atom.Div: true, atom.Section: true, atom.Article: true, atom.Header: true, atom.Footer: true, atom.Main: true,
	atom.Nav: true, atom.Aside: true, atom.Ul: true, atom.Ol: true, atom.Li: true, atom.Dl: true, atom.Dt: true, atom.Dd: true,
	atom.Table: true, atom.Tr: true, atom.Form: true, atom.Fieldset: true, atom.Blockquote: true, atom.Pre: true, atom.Figure: true,
	atom.Figcaption: true, atom.H1: true, atom.H2: true, atom.H3: true, atom.H4: true, atom.H5: true, atom.H6: true, atom.Title: true,
	atom.Hr: true, atom.Details: true, atom.Summary: true, atom.Address: true, atom.Caption: true,
}

var before = map[atom.Atom]string{
	atom.H1: "# ", atom.H2: "## ", atom.H3: "### ", atom.H4: "#### ", atom.H5: "##### ", atom.H6: "###### ",
	atom.Li: "- ", atom.Blockquote: "> ", atom.Hr: "---", atom.Title: "Title: ",
}

func (p *page) node(n *html.Node, depth int) {
	if depth > maxNesting || p.out.Len() > p.limit {
		return
	}
	switch n.Type {
	case html.TextNode:
		p.text(n.Data)
		return
	case html.ElementNode:
		if unseen[n.DataAtom] || hidden(n) {
			return
		}
	}
	p.open(n)
	for c := n.FirstChild; c != nil; c = c.NextSibling {
		p.node(c, depth+1)
	}
	p.close(n)
}

func (p *page) open(n *html.Node) {
	switch {
	case n.DataAtom == atom.Br:
		p.line()
	case n.DataAtom == atom.Td, n.DataAtom == atom.Th:
		if n.PrevSibling != nil {
			p.out.WriteString(" | ")
			p.space = false
		}
	case n.DataAtom == atom.Img:
		if alt := attribute(n, "alt"); alt != "" {
			p.text("[image: " + alt + "]")
		}
	case n.DataAtom == atom.Pre:
		p.line()
		p.pre++
	case blocks[n.DataAtom]:
		p.line()
	}
	p.out.WriteString(before[n.DataAtom])
}

func (p *page) close(n *html.Node) {
	switch {
	case n.DataAtom == atom.A:
		if to := p.target(n); to != "" {
			p.text(" <" + to + ">")
		}
	case n.DataAtom == atom.Pre:
		p.pre--
		p.line()
	case n.DataAtom == atom.P, n.DataAtom == atom.Title, before[n.DataAtom] != "" && n.DataAtom != atom.Li:
		p.line()
		p.blank()
	case blocks[n.DataAtom]:
		p.line()
	}
}

func (p *page) text(s string) {
	if p.pre > 0 {
		p.out.WriteString(s)
		return
	}
	words := strings.Fields(s)
	if len(words) == 0 {
		p.space = p.space || s != ""
		return
	}
	if p.space || strings.ContainsAny(s[:1], " \t\r\n") {
		p.gap()
	}
	p.out.WriteString(strings.Join(words, " "))
	p.space = strings.ContainsAny(s[len(s)-1:], " \t\r\n")
}

// gap writes the one space between two words, none at the start of a line.
func (p *page) gap() {
	if s := p.out.String(); s != "" && !strings.HasSuffix(s, "\n") && !strings.HasSuffix(s, " ") {
		p.out.WriteByte(' ')
	}
}

func (p *page) line() {
	p.space = false
	if s := p.out.String(); s != "" && !strings.HasSuffix(s, "\n") {
		p.out.WriteByte('\n')
	}
}

func (p *page) blank() {
	if s := p.out.String(); s != "" && !strings.HasSuffix(s, "\n\n") {
		p.out.WriteByte('\n')
	}
}

// target returns where a link leads, "" if that is not worth showing.
func (p *page) target(n *html.Node) string {
	href := strings.TrimSpace(attribute(n, "href"))
	if href == "" || strings.HasPrefix(href, "#") || len(href) > maxLink {
		return ""
	}
	u, err := p.base.Parse(href)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || len(u.String()) > maxLink {
		return ""
	}
	return u.String()
}

// hidden reports the plain ways to put text where only a machine reads it. What a
// style sheet hides is not known here.
func hidden(n *html.Node) bool {
	for _, a := range n.Attr {
		if a.Key == "hidden" {
			return true
		}
	}
	for declaration := range strings.SplitSeq(strings.ToLower(attribute(n, "style")), ";") {
		property, value, _ := strings.Cut(declaration, ":")
		value = strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "!important"))
		switch strings.TrimSpace(property) {
		case "display":
			if value == "none" {
				return true
			}
		case "visibility":
			if value == "hidden" || value == "collapse" {
				return true
			}
		case "opacity", "font-size":
			if strings.Trim(value, "0.") == "" || strings.TrimRight(value, "pxemrt%") == "0" {
				return true
			}
		}
	}
	return false
}

func attribute(n *html.Node, key string) string {
	for _, a := range n.Attr {
		if a.Key == key {
			return a.Val
		}
	}
	return ""
}
