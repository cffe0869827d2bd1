package markup

import (
	"reflect"
	"strings"
	"testing"
)

// zw stands for the zero-width space in what tests want.
func zw(s string) string { return strings.ReplaceAll(s, "{zw}", zwsp) }

func TestConstructs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, md                                string
		telegram                                string
		entities                                []Entity
		slack, discord, whatsapp, plain, safely string // safely: the plain of Slack, if it is not plain
	}{
		{
			name: "bold", md: "a **b c** d", telegram: "a b c d", entities: []Entity{{Type: "bold", Offset: 2, Length: 3}},
			slack: "a *b c* d", discord: "a **b c** d", whatsapp: "a *b c* d", plain: "a b c d",
		},
		{
			name: "italic", md: "a *b* _c_", telegram: "a b c",
			entities: []Entity{{Type: "italic", Offset: 2, Length: 1}, {Type: "italic", Offset: 4, Length: 1}},
			slack:    "a _b_ _c_", discord: "a _b_ _c_", whatsapp: "a _b_ _c_", plain: "a b c",
		},
		{
			name: "strike", md: "~~a~~ b", telegram: "a b", entities: []Entity{{Type: "strikethrough", Length: 1}},
			slack: "~a~ b", discord: "~~a~~ b", whatsapp: "~a~ b", plain: "a b",
		},
		{
			name: "styles in each other", md: "**a *b* c**", telegram: "a b c",
			entities: []Entity{{Type: "bold", Length: 5}, {Type: "italic", Offset: 2, Length: 1}},
			slack:    "*a _b_ c*", discord: "**a _b_ c**", whatsapp: "*a _b_ c*", plain: "a b c",
		},
		{
			name: "bold within a word", md: "foo**bar**baz", telegram: "foobarbaz", entities: []Entity{{Type: "bold", Offset: 3, Length: 3}},
			slack: "foo{zw}*bar*{zw}baz", discord: "foo**bar**baz", whatsapp: "foo{zw}*bar*{zw}baz", plain: "foobarbaz",
		},
		{
			name: "code", md: "run `a_b <x> & *y*`", telegram: "run a_b <x> & *y*", entities: []Entity{{Type: "code", Offset: 4, Length: 13}},
			slack: "run `a_b &lt;x&gt; &amp; *y*`", discord: "run `a_b <x> & *y*`", whatsapp: "run `a_b <x> & *y*`", plain: "run a_b <x> & *y*",
			safely: "run a_b &lt;x&gt; &amp; *y*",
		},
		{
			name: "bold around code", md: "**a `b` c**", telegram: "a b c",
			entities: []Entity{{Type: "bold", Length: 2}, {Type: "code", Offset: 2, Length: 1}, {Type: "bold", Offset: 3, Length: 2}},
			slack:    "*a* `b` *c*", discord: "**a** `b` **c**", whatsapp: "*a* `b` *c*", plain: "a b c",
		},
		{
			name: "code with a backtick", md: "``a`b``", telegram: "a`b", entities: []Entity{{Type: "code", Length: 3}},
			slack: "a`b", discord: "`` a`b ``", whatsapp: "a`b", plain: "a`b",
		},
		{
			name: "fence", md: "```go\nx := 1 // <a> & b\n\n  y_z()\n```", telegram: "x := 1 // <a> & b\n\n  y_z()",
			entities: []Entity{{Type: "pre", Length: 26, Language: "go"}},
			slack:    "```\nx := 1 // &lt;a&gt; &amp; b\n\n  y_z()\n```", discord: "```go\nx := 1 // <a> & b\n\n  y_z()\n```",
			whatsapp: "```\nx := 1 // <a> & b\n\n  y_z()\n```", plain: "x := 1 // <a> & b\n\n  y_z()", safely: "x := 1 // &lt;a&gt; &amp; b\n\n  y_z()",
		},
		{
			name: "fence that is not closed", md: "```\na", telegram: "a", entities: []Entity{{Type: "pre", Length: 1}},
			slack: "```\na\n```", discord: "```\na\n```", whatsapp: "```\na\n```", plain: "a",
		},
		{
			name: "fence in a fence", md: "````\n```\na\n```\n````", telegram: "```\na\n```", entities: []Entity{{Type: "pre", Length: 9}},
			slack: "```\n`{zw}`{zw}`\na\n`{zw}`{zw}`\n```", discord: "```\n`{zw}`{zw}`\na\n`{zw}`{zw}`\n```", whatsapp: "```\n`{zw}`{zw}`\na\n`{zw}`{zw}`\n```",
			plain: "```\na\n```", safely: "`{zw}`{zw}`\na\n`{zw}`{zw}`",
		},
		{
			name: "link", md: "see [the *docs*](https://a.b/c?d=1&e=2)", telegram: "see the docs",
			entities: []Entity{{Type: "text_link", Offset: 4, Length: 8, URL: "https://a.b/c?d=1&e=2"}},
			slack:    "see <https://a.b/c?d=1&amp;e=2|the docs>", discord: "see [the docs](https://a.b/c?d=1&e=2)",
			whatsapp: "see the docs (https://a.b/c?d=1&e=2)", plain: "see the docs (https://a.b/c?d=1&e=2)",
			safely: "see the docs (https://a.b/c?d=1&amp;e=2)",
		},
		{
			name: "link by reference", md: "[a][1]\n\n[1]: http://x.y \"t\"", telegram: "a", entities: []Entity{{Type: "text_link", Length: 1, URL: "http://x.y"}},
			slack: "<http://x.y|a>", discord: "[a](http://x.y)", whatsapp: "a (http://x.y)", plain: "a (http://x.y)",
		},
		{
			name: "address", md: "<https://a.b/c_d_e>", telegram: "https://a.b/c_d_e", entities: []Entity{{Type: "text_link", Length: 17, URL: "https://a.b/c_d_e"}},
			slack: "<https://a.b/c_d_e>", discord: "https://a.b/c_d_e", whatsapp: "https://a.b/c_d_e", plain: "https://a.b/c_d_e",
			safely: "https://a.b/c_d_e",
		},
		{
			name: "bare address", md: "at https://a.b/c_d_e now", telegram: "at https://a.b/c_d_e now",
			slack: "at https://a.b/c_d_e now", discord: "at https://a.b/c_d_e now", whatsapp: "at https://a.b/c_d_e now", plain: "at https://a.b/c_d_e now",
		},
		{
			name: "bare addresses with marks", md: "https://a.b/_c_(d)_e https://a.b/@here/~f ~g ~h https://a.b/@channel", telegram: "https://a.b/_c_(d)_e https://a.b/@here/~f ~g ~h https://a.b/@channel",
			slack:    "https://a.b/_c_(d)_e https://a.b/%40here/~{zw}f ~{zw}g ~{zw}h https://a.b/%40channel",
			discord:  "https://a.b/_c_(d)_e https://a.b/%40here/\\~f \\~g \\~h https://a.b/%40channel",
			whatsapp: "https://a.b/_c_(d)_e https://a.b/@here/~{zw}f ~{zw}g ~{zw}h https://a.b/@channel",
			plain:    "https://a.b/_c_(d)_e https://a.b/@here/~f ~g ~h https://a.b/@channel", safely: "https://a.b/_c_(d)_e https://a.b/%40here/~{zw}f ~{zw}g ~{zw}h https://a.b/%40channel",
		},
		{
			name: "link that shows another address", md: "[https://bank.example](https://evil.example/x)", telegram: "https://bank.example (https://evil.example/x)",
			entities: []Entity{{Type: "text_link", Offset: 22, Length: 22, URL: "https://evil.example/x"}},
			slack:    "https://bank.example (<https://evil.example/x>)", discord: "https://bank.example (https://evil.example/x)",
			whatsapp: "https://bank.example (https://evil.example/x)", plain: "https://bank.example (https://evil.example/x)",
			safely: "https://bank.example (https://evil.example/x)",
		},
		{
			name: "link that leads elsewhere", md: "[a](javascript:alert(1)) [b](x.go \"t\") [c](/etc)", telegram: "[a](javascript:alert(1)) [b](x.go \"t\") [c](/etc)",
			slack:    "[a](javascript:alert(1)) [b](x.go \"t\") [c](/etc)",
			discord:  "\\[a\\](javascript:alert(1)) \\[b\\](x.go \"t\") \\[c\\](/etc)",
			whatsapp: "[a](javascript:alert(1)) [b](x.go \"t\") [c](/etc)", plain: "[a](javascript:alert(1)) [b](x.go \"t\") [c](/etc)",
		},
		{
			name: "mail", md: "<me@x.y> [write](mailto:me@x.y)", telegram: "me@x.y write",
			entities: []Entity{{Type: "text_link", Length: 6, URL: "mailto:me@x.y"}, {Type: "text_link", Offset: 7, Length: 5, URL: "mailto:me@x.y"}},
			slack:    "<mailto:me@x.y|me@x.y> <mailto:me@x.y|write>", discord: "me@x.y write (mailto:me@x.y)",
			whatsapp: "me@x.y write (mailto:me@x.y)", plain: "me@x.y write (mailto:me@x.y)", safely: "me@x.y write (mailto:me@x.y)",
		},
		{
			name: "link within Telegram", md: "[a](tg://user?id=1)", telegram: "a", entities: []Entity{{Type: "text_link", Length: 1, URL: "tg://user?id=1"}},
			slack: "[a](tg://user?id=1)", discord: "\\[a\\](tg://user?id=1)", whatsapp: "[a](tg://user?id=1)", plain: "[a](tg://user?id=1)",
		},
		{
			name: "image", md: "![a cat](https://x.y/c.png) ![](https://x.y/d.png)", telegram: "a cat image",
			entities: []Entity{{Type: "text_link", Length: 5, URL: "https://x.y/c.png"}, {Type: "text_link", Offset: 6, Length: 5, URL: "https://x.y/d.png"}},
			slack:    "<https://x.y/c.png|a cat> <https://x.y/d.png|image>", discord: "[a cat](https://x.y/c.png) [image](https://x.y/d.png)",
			whatsapp: "a cat (https://x.y/c.png) image (https://x.y/d.png)", plain: "a cat (https://x.y/c.png) image (https://x.y/d.png)",
		},
		{
			name: "headings", md: "# A *b*\n\ntext\n\nC\n===", telegram: "A b\ntext\n\nC",
			entities: []Entity{{Type: "bold", Length: 3}, {Type: "italic", Offset: 2, Length: 1}, {Type: "bold", Offset: 10, Length: 1}},
			slack:    "*A _b_*\ntext\n\n*C*", discord: "**A _b_**\ntext\n\n**C**", whatsapp: "*A _b_*\ntext\n\n*C*", plain: "A b\ntext\n\nC",
		},
		{
			name: "lists", md: "- a\n  - b\n    - c\n      - d\n- e\n\n3. f\n4. g", telegram: "• a\n  ◦ b\n    ▪ c\n      ▪ d\n• e\n\n3. f\n4. g",
			slack: "• a\n  ◦ b\n    ▪ c\n      ▪ d\n• e\n\n3. f\n4. g", discord: "- a\n  - b\n    - c\n      - d\n- e\n\n3. f\n4. g",
			whatsapp: "• a\n  ◦ b\n    ▪ c\n      ▪ d\n• e\n\n3. f\n4. g", plain: "• a\n  ◦ b\n    ▪ c\n      ▪ d\n• e\n\n3. f\n4. g",
		},
		{
			name: "list with paragraphs", md: "1. a\n\n   b\n\n2. c\n   d", telegram: "1. a\n\n   b\n\n2. c\n   d",
			slack: "1. a\n\n   b\n\n2. c\n   d", discord: "1. a\n\n   b\n\n2. c\n   d", whatsapp: "1. a\n\n   b\n\n2. c\n   d", plain: "1. a\n\n   b\n\n2. c\n   d",
		},
		{
			name: "wide list of single paragraphs", md: "- a\n\n- b", telegram: "• a\n• b",
			slack: "• a\n• b", discord: "- a\n- b", whatsapp: "• a\n• b", plain: "• a\n• b",
		},
		{
			name: "code in a list", md: "- a\n  ```\n  b\n  ```\n- c", telegram: "• a\nb\n• c", entities: []Entity{{Type: "pre", Offset: 4, Length: 1}},
			slack: "• a\n```\nb\n```\n• c", discord: "- a\n```\nb\n```\n- c", whatsapp: "• a\n```\nb\n```\n• c", plain: "• a\nb\n• c",
		},
		{
			name: "tasks", md: "- [x] a\n- [ ] b", telegram: "☑ a\n☐ b", slack: "☑ a\n☐ b", discord: "☑ a\n☐ b", whatsapp: "☑ a\n☐ b", plain: "☑ a\n☐ b",
		},
		{
			name: "quote", md: "> a\n> **b**\n>\n> c\n\nd", telegram: "a\nb\n\nc\n\nd",
			entities: []Entity{{Type: "blockquote", Length: 6}, {Type: "bold", Offset: 2, Length: 1}},
			slack:    "> a\n> *b*\n> \n> c\n\nd", discord: "> a\n> **b**\n> \n> c\n\nd", whatsapp: "> a\n> *b*\n> \n> c\n\nd", plain: "> a\n> b\n>\n> c\n\nd",
			safely: "> a\n> b\n> \n> c\n\nd",
		},
		{
			name: "quote in a quote", md: "> a\n> > b", telegram: "a\n\n› b", entities: []Entity{{Type: "blockquote", Length: 6}},
			slack: "> a\n> \n> › b", discord: "> a\n> \n> › b", whatsapp: "> a\n> \n> › b", plain: "> a\n>\n> > b", safely: "> a\n> \n> › b",
		},
		{
			name: "table", md: "|a|long|n|\n|-|:-:|-:|\n|日本|`x`|10|\n|c|y|", telegram: "a     long   n\n────  ────  ──\n日本   x    10\nc      y",
			entities: []Entity{{Type: "pre", Length: 51}},
			slack:    "```\na     long   n\n────  ────  ──\n日本   x    10\nc      y\n```", discord: "```\na     long   n\n────  ────  ──\n日本   x    10\nc      y\n```",
			whatsapp: "```\na     long   n\n────  ────  ──\n日本   x    10\nc      y\n```", plain: "a     long   n\n────  ────  ──\n日本   x    10\nc      y",
		},
		{
			name: "table with a pipe too many", md: "|a|b|\n|-|-|\n|1|2|3 & 4|", telegram: "a  b\n─  ─────────\n1  2 | 3 & 4", entities: []Entity{{Type: "pre", Length: 30}},
			slack: "```\na  b\n─  ─────────\n1  2 | 3 &amp; 4\n```", discord: "```\na  b\n─  ─────────\n1  2 | 3 & 4\n```",
			whatsapp: "```\na  b\n─  ─────────\n1  2 | 3 & 4\n```", plain: "a  b\n─  ─────────\n1  2 | 3 & 4", safely: "a  b\n─  ─────────\n1  2 | 3 &amp; 4",
		},
		{
			name: "rule", md: "a\n\n***\n\nb", telegram: "a\n\n──────────\n\nb", slack: "a\n\n──────────\n\nb", discord: "a\n\n──────────\n\nb", whatsapp: "a\n\n──────────\n\nb", plain: "a\n\n──────────\n\nb",
		},
		{
			name: "breaks", md: "a\nb  \nc\\\nd", telegram: "a\nb\nc\nd", slack: "a\nb\nc\nd", discord: "a\nb\nc\nd", whatsapp: "a\nb\nc\nd", plain: "a\nb\nc\nd",
		},
		{
			name: "HTML", md: "<b>a</b> <!-- c -->\n\n<div>\nx\n</div>", telegram: "<b>a</b> <!-- c -->\n\n<div>\nx\n</div>",
			slack:   "&lt;b&gt;a&lt;/b&gt; &lt;!-- c --&gt;\n\n&lt;div&gt;\nx\n&lt;/div&gt;",
			discord: "\\<b>a\\</b> \\<!-- c -->\n\n\\<div>\nx\n\\</div>", whatsapp: "<b>a</b> <!-- c -->\n\n<div>\nx\n</div>", plain: "<b>a</b> <!-- c -->\n\n<div>\nx\n</div>",
		},
		{
			name: "names of characters", md: "&lt;&amp;&copy; &#x41;&#x202e;&bogus; &#0;\\*\\_", telegram: "<&© A&bogus; \uFFFD*_",
			slack: "&lt;&amp;© A&amp;bogus; \uFFFD*_", discord: "\\<&© A&bogus; \uFFFD\\*\\_", whatsapp: "<&© A&bogus; \uFFFD*_", plain: "<&© A&bogus; \uFFFD*_",
		},
		{
			name: "marks that are none", md: "\\*a\\* snake_case_name 2 * 3 * 4 ~/.x and ~/.y", telegram: "*a* snake_case_name 2 * 3 * 4 ~/.x and ~/.y",
			slack: "*{zw}a* snake_case_name 2 * 3 * 4 ~{zw}/.x and ~{zw}/.y", discord: "\\*a\\* snake\\_case\\_name 2 \\* 3 \\* 4 \\~/.x and \\~/.y",
			whatsapp: "*{zw}a* snake_case_name 2 * 3 * 4 ~{zw}/.x and ~{zw}/.y", plain: "*a* snake_case_name 2 * 3 * 4 ~/.x and ~/.y",
		},
		{
			name: "marks within marks", md: "**a\\*b** c", telegram: "a*b c", entities: []Entity{{Type: "bold", Length: 3}},
			slack: "*a{zw}*{zw}b* c", discord: "**a\\*b** c", whatsapp: "*a{zw}*{zw}b* c", plain: "a*b c",
		},
		{
			name: "marks of blocks that are none", md: "\\# a\n\n\\> b\n\n\\- c\n\n1\\. d", telegram: "# a\n\n> b\n\n- c\n\n1. d",
			slack: "# a\n\n{zw}&gt; b\n\n- c\n\n1. d", discord: "\\# a\n\n\\> b\n\n\\- c\n\n1\\. d", whatsapp: "# a\n\n{zw}> b\n\n{zw}- c\n\n1. d", plain: "# a\n\n> b\n\n- c\n\n1. d",
		},
		{
			name: "calls", md: "@everyone @HERE @channel <!here> <@U1> <#C1> @**everyone** `@here`", telegram: "@everyone @HERE @channel <!here> <@U1> <#C1> @everyone @here",
			entities: []Entity{{Type: "bold", Offset: 46, Length: 8}, {Type: "code", Offset: 55, Length: 5}},
			slack:    "@{zw}everyone @{zw}HERE @{zw}channel &lt;!here&gt; &lt;@U1&gt; &lt;#C1&gt; @{zw}*everyone* `@{zw}here`",
			discord:  "@{zw}everyone @{zw}HERE @{zw}channel \\<!here> \\<@{zw}U1> \\<#C1> @{zw}**everyone** `@{zw}here`",
			whatsapp: "@everyone @HERE @channel <!here> <@U1> <#C1> @*everyone* `@here`", plain: "@everyone @HERE @channel <!here> <@U1> <#C1> @everyone @here",
			safely: "@{zw}everyone @{zw}HERE @{zw}channel &lt;!here&gt; &lt;@U1&gt; &lt;#C1&gt; @{zw}everyone @{zw}here",
		},
		{
			name: "calls in an address", md: "[a](https://x.y/@everyone)", telegram: "a", entities: []Entity{{Type: "text_link", Length: 1, URL: "https://x.y/@everyone"}},
			slack: "<https://x.y/%40everyone|a>", discord: "[a](https://x.y/%40everyone)", whatsapp: "a (https://x.y/@everyone)", plain: "a (https://x.y/@everyone)",
			safely: "a (https://x.y/%40everyone)",
		},
		{
			name: "spoilers of Discord", md: "||a||", telegram: "||a||", slack: "||a||", discord: "\\|\\|a\\|\\|", whatsapp: "||a||", plain: "||a||",
		},
		{
			name: "nothing", md: " \n\t\u200b\u202e", telegram: "(nothing)", slack: "(nothing)", discord: "(nothing)", whatsapp: "(nothing)", plain: "(nothing)",
		},
		{
			name: "nothing but what Markdown does not show", md: "[a]: http://x.y", telegram: "[a]: http://x.y",
			slack: "[a]: http://x.y", discord: "\\[a\\]: http://x.y", whatsapp: "[a]: http://x.y", plain: "[a]: http://x.y",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			tg := one(t, Telegram(c.md))
			if tg.Text != c.telegram || !reflect.DeepEqual(tg.Entities, c.entities) && len(tg.Entities)+len(c.entities) > 0 {
				t.Errorf("Telegram:\n%q %+v\nwant\n%q %+v", tg.Text, tg.Entities, c.telegram, c.entities)
			}
			sl := one(t, Slack(c.md))
			safely := c.safely
			if safely == "" {
				safely = c.plain
			}
			if sl.Plain != "" && sl.Plain != zw(safely) {
				t.Errorf("plain of Slack:\n%q\nwant\n%q", sl.Plain, zw(safely))
			}
			for _, got := range []struct{ name, text, want string }{
				{"Slack", sl.Text, c.slack},
				{"Discord", one(t, Discord(c.md)).Text, c.discord},
				{"WhatsApp", one(t, WhatsApp(c.md, 0)).Text, c.whatsapp},
				{"Plain", one(t, Plain(c.md, 0)).Text, c.plain},
			} {
				if got.text != zw(got.want) {
					t.Errorf("%s:\n%q\nwant\n%q", got.name, strings.ReplaceAll(got.text, zwsp, "{zw}"), got.want)
				}
			}
			check(t, c.md)
		})
	}
}

func TestWideTablesBecomeLists(t *testing.T) {
	t.Parallel()
	md := "|Option|What it costs and what it brings|\n|-|-|\n|`a`|" + strings.Repeat("long ", 20) + "|\n|b||\n"
	want := "*Option:* a\n*What it costs and what it brings:* " + strings.TrimSpace(strings.Repeat("long ", 20)) + "\n\n*Option:* b\n*What it costs and what it brings:* –"
	if got := one(t, Slack(md)).Text; got != want {
		t.Fatalf("got\n%s\nwant\n%s", got, want)
	}
}

func TestAddressesThatLeaveNoRoomAreShown(t *testing.T) {
	t.Parallel()
	long := "https://x.y/" + strings.Repeat("z", 3000)
	for _, n := range networks {
		for _, p := range n.render("see [this](" + long + ") there") {
			if len(p.Entities) > 0 || strings.Count(p.Text, "https") > 1 {
				t.Errorf("%s: %q", n.name, p.Text)
			}
		}
		all := strings.Join(texts(n.render("see [this]("+long+") there")), "")
		if all = strings.ReplaceAll(all, "\\", ""); all != "see [this]("+long+") there" && all != "see[this]("+long+")there" && all != "see [this]("+long+")there" {
			t.Errorf("%s: %q", n.name, all)
		}
	}
}

func TestSmallLimitsHold(t *testing.T) {
	t.Parallel()
	md := strings.Repeat("> ", 40) + strings.Repeat("- ", 20) + strings.Repeat("> 1. ", 10) + "**" + strings.Repeat("[word &](https://x.y/&&&&) ", 200) + "**"
	for i, p := range WhatsApp(md, 1) {
		if len(p.Text) > minLimit || len(p.Plain) > minLimit {
			t.Errorf("piece %d has %d bytes", i, len(p.Text))
		}
	}
	for i, p := range Plain(md, 1) {
		if utf16s.of(p.Text) > minLimit {
			t.Errorf("piece %d has %d units", i, utf16s.of(p.Text))
		}
	}
	check(t, md)
}
