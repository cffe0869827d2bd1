package markup

import (
	"html"
	"strings"

	"github.com/yuin/goldmark/ast"
	east "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/util"
)

// inline makes runs of what is in a block of text.
func (f *flattener) inline(n ast.Node, st style) []run {
	w := words{f: f}
	w.children(n, st)
	return w.runs
}

// words collects runs.
type words struct {
	f    *flattener
	runs []run
}

func (w *words) add(text string, st style, url string) {
	if text == "" {
		return
	}
	if n := len(w.runs); n > 0 && w.runs[n-1].style == st && w.runs[n-1].url == url && len(w.runs[n-1].text) < 1<<10 {
		w.runs[n-1].text += text
		return
	}
	w.runs = append(w.runs, run{text, st, url})
}

func (w *words) children(n ast.Node, st style) {
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		w.node(c, st)
	}
}

func (w *words) node(n ast.Node, st style) {
	switch n := n.(type) {
	case *ast.Text:
		w.add(unescape(string(n.Value(w.f.src))), st, "")
		if n.SoftLineBreak() || n.HardLineBreak() {
			w.add("\n", st, "")
		}
	case *ast.String:
		w.add(string(n.Value), st, "")
	case *ast.CodeSpan:
		w.codeSpan(n, st)
	case *ast.Emphasis:
		if n.Level > 1 {
			w.children(n, st|bold)
		} else {
			w.children(n, st|italic)
		}
	case *east.Strikethrough:
		w.children(n, st|strike)
	case *ast.AutoLink:
		w.autoLink(n, st)
	case *ast.Link:
		w.link(n, n.Destination, n.Title, st, "[")
	case *ast.Image:
		w.link(n, n.Destination, n.Title, st, "![")
	case *east.TaskCheckBox: // it is the bullet
	default:
		w.children(n, st)
	}
}

func (w *words) codeSpan(n ast.Node, st style) {
	var b strings.Builder
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		if t, ok := c.(*ast.Text); ok {
			b.Write(t.Value(w.f.src))
		}
	}
	text := strings.ReplaceAll(b.String(), "\n", " ")
	if strings.TrimSpace(text) == "" {
		w.add(text, st, "")
		return
	}
	w.add(text, code, "")
}

func (w *words) autoLink(n *ast.AutoLink, st style) {
	label := string(n.Label(w.f.src))
	url := label
	if n.AutoLinkType == ast.AutoLinkEmail && !strings.HasPrefix(strings.ToLower(url), "mailto:") {
		url = "mailto:" + url
	}
	if url, ok := w.f.d.target(url); ok {
		if n.AutoLinkType == ast.AutoLinkURL {
			label = url
		}
		w.add(label, st, url)
		return
	}
	w.add("<"+label+">", st, "")
}

// link adds a link. A network gets one only if it leads where people expect a link to
// lead; any other is shown as it was written.
func (w *words) link(n ast.Node, dest, title []byte, st style, open string) {
	inner := words{f: w.f}
	inner.children(n, st)
	url, ok := w.f.d.target(unescape(string(dest)))
	if !ok {
		w.add(open, st, "")
		w.runs = append(w.runs, inner.runs...)
		end := "](" + unescape(string(dest))
		if len(title) > 0 {
			end += ` "` + unescape(string(title)) + `"`
		}
		w.add(end+")", st, "")
		return
	}
	var label strings.Builder
	shared := bold | italic | strike
	for _, r := range inner.runs {
		label.WriteString(r.text)
		if r.style != code {
			shared &= r.style
		}
	}
	if len(inner.runs) == 0 {
		shared = st
	}
	w.labelled(strings.Join(strings.Fields(label.String()), " "), url, shared, open == "![")
}

func (w *words) labelled(label, url string, st style, image bool) {
	switch {
	case !visible(label) && image:
		label = "image"
	case !visible(label):
		label = url
	case label != url && (strings.Contains(label, "://") || strings.HasPrefix(label, "www.")):
		// It shows an address and leads to another: people see both.
		if strings.TrimSuffix(url, "/") != strings.TrimSuffix(label, "/") {
			w.add(label+" (", st, "")
			w.add(url, st, url)
			w.add(")", st, "")
			return
		}
		label = url
	}
	w.add(label, st, url)
}

// target makes the address of a link fit for every network's syntax. false if it may be
// no link there.
func (d *dialect) target(url string) (string, bool) {
	scheme, rest, ok := strings.Cut(url, ":")
	if !ok || rest == "" || strings.TrimLeft(rest, "/") == "" {
		return "", false
	}
	known := false
	for _, s := range d.schemes {
		known = known || strings.EqualFold(s, scheme)
	}
	if !known {
		return "", false
	}
	url = urlEscapes.Replace(url)
	if d.quiet {
		url = urlCalls(url)
	}
	return url, len(url) <= d.maxURL && !strings.ContainsAny(url, "\n\t\u00a0\u3000")
}

// urlEscapes writes what ends an address in one network's syntax or another's in the way
// every server understands.
var urlEscapes = strings.NewReplacer(" ", "%20", "<", "%3C", ">", "%3E", "|", "%7C", `"`, "%22", "`", "%60",
	"\\", "%5C", "(", "%28", ")", "%29", "*", "%2A", "\u200c", "", "\u200d", "")

// urlCalls writes the @ of an address so that no network takes what follows it for a name.
func urlCalls(url string) string {
	low := strings.ToLower(url)
	if strings.Contains(low, "@everyone") || strings.Contains(low, "@here") || strings.Contains(low, "@channel") {
		return strings.ReplaceAll(url, "@", "%40")
	}
	return url
}

// unescape makes text of Markdown that has no more marks in it: \* and &amp;. What it
// names may be no text to show.
func unescape(s string) string {
	if !strings.ContainsAny(s, `\&`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\' && i+1 < len(s) && util.IsPunct(s[i+1]):
			i++
			b.WriteByte(s[i])
		case c == '&':
			ref, text := reference(s[i:])
			b.WriteString(text)
			i += ref - 1
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// reference reads the name of a character that s may begin with, and how long it is.
func reference(s string) (int, string) {
	end := strings.IndexByte(s[:min(len(s), 34)], ';')
	if end < 2 {
		return 1, "&"
	}
	text := html.UnescapeString(s[:end+1])
	if text == s[:end+1] || strings.HasSuffix(text, ";") && text != ";" { // none, or one of its first letters
		return 1, "&"
	}
	text = strings.Map(func(r rune) rune {
		if r == zwj || r == '\u200c' || r == 0xAD { // written by name it joins nothing
			return -1
		}
		return r
	}, clean(text))
	return end + 1, strings.ReplaceAll(text, "\n", " ")
}
