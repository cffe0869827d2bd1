package markup

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// The rows are reports of what went wrong elsewhere.

// Row 23: an answer of more than 4,096 characters was refused and nobody saw it.
func TestField23LongAnswersAreSplit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, md string
		sizes    []int // UTF-16 units of Telegram's pieces
	}{
		{"4096", strings.Repeat("a", 4096), []int{4096}},
		{"4097", strings.Repeat("a", 4097), []int{4096, 1}},
		{"12000", strings.Repeat("a", 12000), []int{4096, 4096, 3808}},
		{"2048 emoji", strings.Repeat("😀", 2048), []int{4096}},
		{"2049 emoji", strings.Repeat("😀", 2049), []int{4096, 2}},
		{"a line of 5000", strings.TrimSpace(strings.Repeat("word ", 1000)), []int{4094, 904}},
		{"bold of 4096", "**" + strings.Repeat("a", 4096) + "**", []int{4096}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var sizes []int
			for _, p := range Telegram(c.md) {
				sizes = append(sizes, utf16s.of(p.Text))
			}
			if !slices.Equal(sizes, c.sizes) {
				t.Fatalf("pieces of %v units, want %v", sizes, c.sizes)
			}
			check(t, c.md)
		})
	}
}

// Row 24: a cut within formatting made a text that could not be parsed.
func TestField24FormattingIsNotCut(t *testing.T) {
	t.Parallel()
	var code strings.Builder
	for i := 0; code.Len() < 6000; i++ {
		fmt.Fprintf(&code, "fmt.Println(%d) // a_b*c\n", i)
	}
	t.Run("a fence", func(t *testing.T) {
		t.Parallel()
		md := "```go\n" + code.String() + "```"
		for i, p := range Telegram(md) {
			want := []Entity{{Type: "pre", Length: utf16s.of(p.Text), Language: "go"}}
			if !slices.Equal(p.Entities, want) || i > 1 {
				t.Fatalf("piece %d: %v, want %v", i, p.Entities, want)
			}
		}
		for _, c := range []struct {
			pieces []Piece
			open   string
		}{{Discord(md), "```go\n"}, {Slack(md), "```\n"}, {WhatsApp(md, 0), "```\n"}} {
			var got strings.Builder
			for i, p := range c.pieces {
				inner, opened := strings.CutPrefix(p.Text, c.open)
				inner, closed := strings.CutSuffix(inner, "\n```")
				if !opened || !closed || strings.Contains(inner, "```") {
					t.Fatalf("piece %d is no fence: %q", i, p.Text)
				}
				got.WriteString(inner + "\n")
			}
			if len(c.pieces) < 2 || got.String() != code.String() {
				t.Fatalf("%d pieces hold another code: %q", len(c.pieces), got.String())
			}
		}
		check(t, md)
	})
	t.Run("bold", func(t *testing.T) {
		t.Parallel()
		for at := 4080; at < 4100; at++ {
			md := strings.Repeat("x", at-1) + " **bold here** end"
			pieces := Telegram(md)
			var marked string
			for _, p := range pieces {
				for _, e := range p.Entities {
					if e.Type != "bold" {
						t.Fatalf("%+v", e)
					}
					marked += p.Text[e.Offset:e.Offset+e.Length] + " "
				}
			}
			if strings.Join(strings.Fields(marked), "") != "boldhere" {
				t.Fatalf("at %d: %q is bold", at, marked)
			}
			check(t, md)
		}
	})
	t.Run("bold in Slack", func(t *testing.T) {
		t.Parallel()
		pieces := Slack("**" + strings.TrimSpace(strings.Repeat("word ", 1500)) + "**")
		for i, p := range pieces {
			if !strings.HasPrefix(p.Text, "*word") || !strings.HasSuffix(p.Text, "word*") || strings.Count(p.Text, "*") != 2 {
				t.Fatalf("piece %d: %q", i, p.Text)
			}
		}
		if len(pieces) != 2 {
			t.Fatalf("%d pieces", len(pieces))
		}
	})
}

// Row 26: the text of an error broke the parser of the network.
func TestField26ForeignTextArrivesVerbatim(t *testing.T) {
	t.Parallel()
	const text = "a_b*c[d](e)`~>#+-=|{}.!"
	for name, want := range map[string]string{
		"telegram": text,
		"slack":    "a_b*c[d](e)`~&gt;#+-=|{}.!",
		"discord":  "a\\_b\\*c\\[d\\](e)\\`\\~>#+-=\\|{}.!",
		"whatsapp": text,
		"plain":    text,
	} {
		for _, n := range networks {
			if n.name != name {
				continue
			}
			p := one(t, n.render(text))
			if p.Text != want || len(p.Entities) > 0 {
				t.Errorf("%s: %q %v, want %q", name, p.Text, p.Entities, want)
			}
		}
	}
}

// Row 37: Slack showed tables and headings as their source.
func TestField37SlackShowsTablesAndHeadings(t *testing.T) {
	t.Parallel()
	const md = "## Sizes\n\n| Name | Bytes |\n|---|--:|\n| `a_b` | 1 |\n| **c** & d | 1000 |\n"
	const want = "*Sizes*\n```\nName   Bytes\n─────  ─────\na_b        1\nc &amp; d   1000\n```"
	if got := one(t, Slack(md)).Text; got != want {
		t.Fatalf("got\n%s\nwant\n%s", got, want)
	}
}

// Row 40: an answer that was too long became silence.
func TestField40WhatIsTooLongIsCutVisibly(t *testing.T) {
	t.Parallel()
	word := "lorem ipsum dolor\n\n"
	for _, n := range networks {
		md := strings.Repeat(word, 3*maxPieces*n.limit/len(word))
		pieces := n.render(md)
		if len(pieces) != maxPieces {
			t.Fatalf("%s: %d pieces", n.name, len(pieces))
		}
		kept := 0
		for _, p := range pieces {
			kept += strings.Count(p.Text, "lorem") + strings.Count(p.Text, "ipsum") + strings.Count(p.Text, "dolor")
		}
		_, mark, ok := strings.Cut(pieces[maxPieces-1].Text, "… cut here: the whole is in ombud (")
		left := 0
		if _, err := fmt.Sscanf(mark, "%d characters left out)", &left); !ok || err != nil || !strings.HasSuffix(mark, "out)") {
			t.Fatalf("%s: the last piece ends in %q: %v", n.name, mark, err)
		}
		whole := strings.Count(md, "lorem") * 17
		if gone := whole - kept/3*17; left < gone-20 || left > len(md)-kept/3*17 {
			t.Fatalf("%s: told of %d characters; %d of %d are gone", n.name, left, gone, whole)
		}
		check(t, md)
	}
}

func TestWhatIsNotReadIsTold(t *testing.T) {
	t.Parallel()
	md := "hello\n" + strings.Repeat(" \n", maxSource)
	got := one(t, Telegram(md)).Text
	if want := "hello\n\n… cut here: the whole is in ombud (262150 characters left out)"; got != want {
		t.Fatalf("%q, want %q", got, want)
	}
}

func TestWhatIsNotReadCountsWithWhatIsLeftOut(t *testing.T) {
	t.Parallel()
	const word = "aaaaaaaaa\n\n"
	md := strings.Repeat(word, 60_000)
	read, rest := bound(md)
	pieces := Telegram(md)
	kept := strings.Count(strings.Join(texts(pieces), ""), word[:9])
	want := (len(read)/len(word)-kept)*9 + rest
	if last := pieces[len(pieces)-1].Text; len(pieces) != maxPieces || !strings.HasSuffix(last, fmt.Sprintf(" (%d characters left out)", want)) {
		t.Fatalf("%d pieces, the last ends in %q, want %d left out", len(pieces), last[len(last)-80:], want)
	}
}

func TestPiecesEndWhereItShowsLeast(t *testing.T) {
	t.Parallel()
	para := func(c string, n int) string { return strings.TrimSpace(strings.Repeat(c+" ", n/2)) }
	for _, c := range []struct {
		name, md string
		starts   []string // of the pieces
	}{
		{"between paragraphs", para("a", 1500) + "\n\n" + para("b", 400) + "\n\n" + para("c", 400), []string{"a", "c"}},
		{"not behind a heading", para("a", 1500) + "\n\n# Head\n\n" + para("b", 900), []string{"a", "**Head**"}},
		{"before a list", para("a", 1300) + "\n\n- " + para("b", 500) + "\n- " + para("c", 500), []string{"a", "- c"}},
		{"not within a paragraph", para("a", 1300) + "\n\n" + para("b", 500) + "\n" + para("c", 500), []string{"a", "b"}},
		{"not with empty lines of code", "```\n" + para("a", 1990) + strings.Repeat("\n", 3000) + "b\n```", []string{"```\na", "```\nb"}},
		{"not with what nobody sees", "```\na" + strings.Repeat("\u00a0", 5000) + "b\n```", []string{"```\na", "```\n"}},
		{"not behind an @", "xxxxx" + strings.Repeat("<@1>", 500), []string{"xxxxx", "@" + zwsp}},
		{"between the lines of code", "x\n\n```py\n" + para("a", 1500) + "\n" + para("b", 1500) + "\n```", []string{"x", "```py\nb"}},
		{"within a line that is too long", "# Head\n\n" + para("a", 3000), []string{"**Head**\na", "a"}},
		{"under the bullet", "- " + para("a", 3000), []string{"- a", "a"}},
		{"within a quote", "> " + para("a", 3000), []string{"> a", "> a"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			pieces := Discord(c.md)
			if len(pieces) != len(c.starts) {
				t.Fatalf("%d pieces, want %d: %q", len(pieces), len(c.starts), texts(pieces))
			}
			for i, p := range pieces {
				if !strings.HasPrefix(p.Text, c.starts[i]) {
					t.Errorf("piece %d begins with %q, want %q", i, p.Text[:min(20, len(p.Text))], c.starts[i])
				}
			}
			check(t, c.md)
		})
	}
}

func TestCharactersStayWhole(t *testing.T) {
	t.Parallel()
	for _, glyph := range []string{"e\u0301", "👩‍👩‍👧‍👦", "🇩🇪", "👍🏽", "각", "ก็", "क्षि", "❤️", "1️⃣"} {
		for _, n := range networks {
			for _, p := range n.render(strings.Repeat(glyph, 5000)) {
				text, _, _ := strings.Cut(p.Text, "\n")
				if strings.Trim(strings.ReplaceAll(text, glyph, ""), " ") != "" {
					t.Errorf("%s cuts %q: …%+q", n.name, glyph, text[len(text)-12:])
				}
			}
		}
	}
}
