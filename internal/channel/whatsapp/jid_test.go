package whatsapp

import (
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/channel"
	"github.com/ombud-run/ombud/internal/fault"
)

func TestOneIDHasManySpellings(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{
		"123:16@s.whatsapp.net":   "123@s.whatsapp.net",
		"123.0:16@s.whatsapp.net": "123@s.whatsapp.net",
		"123@s.whatsapp.net":      "123@s.whatsapp.net",
		"123@S.WhatsApp.net":      "123@s.whatsapp.net",
		"123@c.us":                "123@s.whatsapp.net",
		"+123":                    "123@s.whatsapp.net",
		"123":                     "123@s.whatsapp.net",
		"+1 (555) 000-1111":       "15550001111@s.whatsapp.net",
		"+123@s.whatsapp.net":     "123@s.whatsapp.net",
		"987@lid":                 "987@lid",
		"987:3@lid":               "987@lid",
		"12-34@g.us":              "12-34@g.us",
		"Ann":                     "Ann",
		"":                        "",
		"+":                       "+",
	} {
		if got := normal(id); got != want {
			t.Errorf("%q is %q, want %q", id, got, want)
		}
		if got := normal(normal(id)); got != want {
			t.Errorf("%q twice is %q", id, got)
		}
	}
}

func TestOmbudIsKnownByEachOfItsIDs(t *testing.T) {
	t.Parallel()
	me := channel.Me{ID: "123@s.whatsapp.net", IDs: []string{"123@s.whatsapp.net", "987@lid"}}
	for id, want := range map[string]bool{
		"123:16@s.whatsapp.net": true, "987@lid": true, "987:2@lid": true, "+123": true,
		"124@s.whatsapp.net": false, "123@lid": false, "": false,
	} {
		if me.Is(normal(id)) != want {
			t.Errorf("%q is ombud's: %v", id, !want)
		}
	}
}

func TestOnlyIDsOfChatsAreSentTo(t *testing.T) {
	t.Parallel()
	for chat, ok := range map[string]bool{
		"123@s.whatsapp.net": true, "987@lid": true, "120363@g.us": true, "1-2@g.us": true, "+123": true, "123:4@s.whatsapp.net": true,
		"Ann": false, "": false, "--text=x@g.us": false, "-1@g.us": false, "status@broadcast": false, "1@newsletter": false,
		"1@g.us --to 2": false, "1@g.us\n": true, "1\x00@g.us": false, strings.Repeat("1", 99) + "@g.us": false,
	} {
		_, err := target(chat)
		if (err == nil) != ok || err != nil && !fault.Is(err, fault.Invalid) {
			t.Errorf("%q: %v", chat, err)
		}
	}
}

func TestANameIsOneLine(t *testing.T) {
	t.Parallel()
	if got := line(" Ann\r\n[image]\x00\u2028x  y "); got != "Ann [image] x y" {
		t.Errorf("%q", got)
	}
	if got := line(strings.Repeat("é", 500)); len(got) > maxName || !strings.HasPrefix(got, "éé") {
		t.Errorf("%d bytes", len(got))
	}
}
