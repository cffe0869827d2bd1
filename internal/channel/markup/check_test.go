package markup

import (
	"reflect"
	"regexp"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"
)

// networks are all there are, by name.
var networks = []struct {
	name   string
	render func(md string) []Piece
	unit   unit
	limit  int
}{
	{"telegram", Telegram, utf16s, 4096},
	{"slack", Slack, utf16s, 3800},
	{"discord", Discord, utf16s, 2000},
	{"whatsapp", func(md string) []Piece { return WhatsApp(md, 0) }, octets, 4096},
	{"plain", func(md string) []Piece { return Plain(md, 1000) }, utf16s, 1000},
}

var (
	slackCommand = regexp.MustCompile(`<[^>|]*[@!#][^>|]*[>|]`)
	slackLinks   = regexp.MustCompile(`<(https?|mailto):[^<>|]*(\|[^<>]*)?>`)
	everybody    = regexp.MustCompile(`(?i)@(channel|here|everyone)`)
	discordPing  = regexp.MustCompile(`<@[^\x{200b}]|<@$|@everyone|@here`)
)

// fataler is what a test of testing and one of rapid have in common.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// check holds what is true of the pieces of any text.
func check(t fataler, md string) {
	t.Helper()
	for _, n := range networks {
		pieces := n.render(md)
		if !reflect.DeepEqual(pieces, n.render(md)) {
			t.Fatalf("%s: %q gives other pieces the second time", n.name, md)
		}
		if len(pieces) < 1 || len(pieces) > maxPieces {
			t.Fatalf("%s: %q gives %d pieces", n.name, md, len(pieces))
		}
		for i, p := range pieces {
			for _, text := range []string{p.Text, p.Plain} {
				if !utf8.ValidString(text) || clean(strings.ReplaceAll(text, zwsp, "")) != strings.ReplaceAll(text, zwsp, "") {
					t.Fatalf("%s: piece %d of %q has what is never shown: %q", n.name, i, md, text)
				}
				if size := n.unit.of(text); size > n.limit {
					t.Fatalf("%s: piece %d of %q has %d units", n.name, i, md, size)
				}
				ping(t, n.name, text)
			}
			if !visible(p.Text) {
				t.Fatalf("%s: piece %d of %q shows nothing: %q", n.name, i, md, p.Text)
			}
			if p.Plain == p.Text {
				t.Fatalf("%s: piece %d of %q says its text twice", n.name, i, md)
			}
			entities(t, p)
		}
	}
}

// ping holds that a text calls nobody.
func ping(t fataler, network, text string) {
	t.Helper()
	switch network {
	case "slack":
		if everybody.MatchString(text) || slackCommand.MatchString(slackLinks.ReplaceAllString(text, "")) {
			t.Fatalf("slack: %q calls people", text)
		}
		if rest := slackLinks.ReplaceAllString(text, ""); strings.Contains(rest, "<") {
			t.Fatalf("slack: %q has a < that is no link's", text)
		}
	case "discord":
		if discordPing.MatchString(text) {
			t.Fatalf("discord: %q calls people", text)
		}
	}
}

// entities holds what Telegram demands of the entities of a text, and what makes them be
// of use.
func entities(t fataler, p Piece) {
	t.Helper()
	units := utf16.Encode([]rune(p.Text))
	if len(p.Entities) > maxEntities {
		t.Fatalf("%d entities", len(p.Entities))
	}
	for i, e := range p.Entities {
		end := e.Offset + e.Length
		if e.Offset < 0 || e.Length <= 0 || end > len(units) {
			t.Fatalf("entity %+v is not in the text %q", e, p.Text)
		}
		if cuts(units, e.Offset) || cuts(units, end) {
			t.Fatalf("entity %+v cuts a character of %q", e, p.Text)
		}
		for _, o := range p.Entities[:i] {
			oend := o.Offset + o.Length
			if o.Offset > e.Offset || o.Offset == e.Offset && oend < end {
				t.Fatalf("entity %+v is behind %+v", e, o)
			}
			if oend > e.Offset && oend < end {
				t.Fatalf("entity %+v lies half in %+v", e, o)
			}
			if oend > e.Offset && (o.Type == "pre" || o.Type == "code" || o.Type == e.Type) {
				t.Fatalf("entity %+v lies in %+v", e, o)
			}
		}
		switch e.Type {
		case "bold", "italic", "strikethrough", "code", "blockquote", "pre":
			if e.URL != "" || e.Language != "" && e.Type != "pre" {
				t.Fatalf("entity %+v", e)
			}
		case "text_link":
			if !regexp.MustCompile(`^(?i:https?|mailto|tg):`).MatchString(e.URL) {
				t.Fatalf("entity %+v", e)
			}
		default:
			t.Fatalf("entity %+v is of no known type", e)
		}
	}
}

// cuts reports whether a place lies between the halves of a character.
func cuts(units []uint16, at int) bool {
	return at < len(units) && units[at] >= 0xDC00 && units[at] <= 0xDFFF
}

func texts(pieces []Piece) []string {
	out := make([]string, len(pieces))
	for i, p := range pieces {
		out[i] = p.Text
	}
	return out
}

// one returns the only piece there should be.
func one(t *testing.T, pieces []Piece) Piece {
	t.Helper()
	if len(pieces) != 1 {
		t.Fatalf("%d pieces, want 1: %q", len(pieces), texts(pieces))
	}
	return pieces[0]
}
