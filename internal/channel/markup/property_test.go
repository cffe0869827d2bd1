package markup

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// shards are what Markdown, and what networks make of text, is broken with.
var shards = []string{
	"*", "**", "_", "__", "~", "~~", "`", "``", "```", "\n```go\n", "\n```\n", "[", "](", ")", "](http://a.b/c)", "![", "<", ">", "\n> ", "\n- ", "\n1. ",
	"\n  - ", "\n# ", "\n---\n", "\n\n", "\n", "|", "\n|a|b|\n|-|:-:|\n|c|", "- [ ] ", "\\", "&amp;", "&#x202e;", "&#0;", "&lt;!channel&gt;", "<!channel>",
	"<!here>", "<@U123>", "<#C1>", "<!subteam^S1>", "@channel", "@here", "@everyone", "@Everyone", "@**everyone**", "@", "everyone", "<@&1>", "<@!1>",
	"https://x.y/@here", "[a](mailto:x@y.z)", "[a](javascript:x)", "[x](https://a/@everyone|b>)", "\u202e", "\u200b", "\xff", "\x00", "😀", "👩‍👩‍👧‍👦", "e\u0301", "🇩🇪",
	"word", "two words", " ", "    ", "\t", "||", "%", "a_b", "=", "\n===\n", "<div>", "<!--", "(https://e.f/(g))",
}

func TestAnyTextBecomesSafePieces(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		md := strings.Join(rapid.SliceOfN(rapid.OneOf(rapid.SampledFrom(shards), rapid.StringN(0, 8, -1)), 0, 60).Draw(t, "shards"), "")
		if n := rapid.SampledFrom([]int{1, 1, 1, 7, 60}).Draw(t, "times"); n > 1 {
			md = strings.Repeat(md, n)
		}
		check(t, md)
	})
}

// doc makes Markdown as a model writes it, of the words w1, w2 and so on.
type doc struct {
	t    *rapid.T
	next int
}

func (d *doc) word() string {
	d.next++
	return fmt.Sprintf("w%d.", d.next)
}

func (d *doc) phrase() string {
	var b strings.Builder
	for range rapid.IntRange(1, 30).Draw(d.t, "words") {
		format := rapid.SampledFrom([]string{"%s", "%s", "%s", "**%s**", "*%s*", "~~%s~~", "`%s`", "[%s](https://a.b/c)", "***%s***", "%s_x", "@%s", "<%s>", "&amp;%s", "**%s", "[%s"}).Draw(d.t, "format")
		fmt.Fprintf(&b, format+" ", d.word())
	}
	return strings.TrimSpace(b.String())
}

func (d *doc) block(depth int) string {
	kinds := []string{"text", "head", "code", "list", "numbers", "quote", "table", "rule", "setext", "lines"}
	switch kind := rapid.SampledFrom(kinds).Draw(d.t, "kind"); kind {
	case "head":
		return "## " + d.phrase()
	case "code":
		return "```go\n" + d.word() + "\n  " + d.word() + "\n\n" + d.word() + "\n```"
	case "list", "numbers", "quote":
		var items []string
		between := "\n"
		for range rapid.IntRange(1, 4).Draw(d.t, "items") {
			mark := map[string]string{"list": "- ", "numbers": "1. ", "quote": "> "}[kind]
			inner := d.phrase()
			if depth < 3 && rapid.Bool().Draw(d.t, "nested") {
				inner += "\n\n" + d.block(depth+1)
			}
			indent := strings.Repeat(" ", len(mark))
			if kind == "quote" {
				indent, between = mark, "\n\n"
			}
			items = append(items, mark+strings.ReplaceAll(inner, "\n", "\n"+indent))
		}
		return strings.Join(items, between)
	case "table":
		s := "| " + d.word() + " | " + d.word() + " |\n|---|--:|"
		for range rapid.IntRange(0, 5).Draw(d.t, "rows") {
			s += "\n| **" + d.word() + "** | " + d.word() + " " + d.word() + " | " + d.word() + " |"
		}
		return s
	case "rule":
		return "***"
	case "setext":
		return d.word() + "\n==="
	case "lines":
		return d.word() + "\n" + d.word() + "  \n" + d.word() + "\\\n" + d.word()
	}
	return d.phrase()
}

func TestEveryWordArrivesOnceAndInOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := doc{t: t}
		var blocks []string
		for range rapid.IntRange(1, 25).Draw(t, "blocks") {
			blocks = append(blocks, d.block(0))
		}
		md := strings.Join(blocks, "\n\n")
		check(t, md)
		for _, n := range networks {
			all := strings.Join(texts(n.render(md)), "\n")
			from := 0
			for i := 1; i <= d.next; i++ {
				w := fmt.Sprintf("w%d.", i)
				at := strings.Index(all[from:], w)
				if at < 0 || strings.Count(all, w) != 1 {
					t.Fatalf("%s: %s is there %d times, or out of order, in\n%s\nmade of\n%s", n.name, w, strings.Count(all, w), all, md)
				}
				from += at + len(w)
			}
		}
	})
}

func FuzzRender(f *testing.F) {
	answer, err := os.ReadFile("testdata/answer.md")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(answer))
	f.Add(strings.Join(shards, " "))
	for _, s := range shards {
		f.Add(s)
		f.Add(strings.Repeat(s, 300))
	}
	f.Fuzz(func(t *testing.T, md string) {
		check(t, md)
	})
}

// TestHostileTextIsBoundedWork renders what takes a parser the square of its length, or
// more: it would not end in a day.
func TestHostileTextIsBoundedWork(t *testing.T) {
	t.Parallel()
	hostile := map[string]string{
		"4 MiB":                  strings.Repeat("hello **world** and `more`\n\n", 4<<20/28),
		"cells":                  "|" + strings.Repeat("a|", 8000) + "\n|" + strings.Repeat("-|", 8000) + "\n" + strings.Repeat("|\n", 8000),
		"emphasis in paragraphs": strings.Repeat(strings.Repeat("*a_ ", 4000)+"\n\n", 16),
		"pipes":                  strings.Repeat("|a|b|\n|-|-|\n"+strings.Repeat("|`\\|`|b|\n", 400)+"\n", 60),
	}
	for _, s := range []string{
		"[", "![", ">", "> ", "- ", "* ", "1. ", "*a_ ", "_*", "~", "`", "[a](b \"", "[a]: b \"\n", "<!--", "|", "|a", "\\|`", "# ", "> - ", "[a][", "[[a](http://b)",
		"\u0301", "🇩", "@here", "<http://", " http://a_", "**a ", "\n",
	} {
		hostile["many "+s] = strings.Repeat(s, 1<<20/len(s))
	}
	for name, md := range hostile {
		for _, n := range networks[:2] { // one of each kind of pen
			if pieces := n.render(md); len(pieces) < 1 || len(pieces) > maxPieces {
				t.Errorf("%s: %s gives %d pieces", n.name, name, len(pieces))
			}
		}
	}
}

func BenchmarkRender(b *testing.B) {
	answer, err := os.ReadFile("testdata/answer.md")
	if err != nil {
		b.Fatal(err)
	}
	md := strings.Repeat(string(answer)+"\n", 4)[:3<<10]
	for _, n := range networks {
		b.Run(n.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(md)))
			for b.Loop() {
				n.render(md)
			}
		})
	}
}
