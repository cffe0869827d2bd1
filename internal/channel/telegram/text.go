package telegram

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"

	"github.com/ombud-run/ombud/internal/fault"
)

const maxName = 256 // bytes of a name or title

// span is the part of a text that an entity marks, "" if it marks none: beyond the end, or
// a half of a character.
func span(text string, offset, length int) string {
	if offset < 0 || length <= 0 || offset > len(text) || length > len(text) {
		return ""
	}
	from, at := -1, 0
	for i, r := range text {
		if at == offset {
			from = i
		}
		if at == offset+length {
			return cutFrom(text, from, i)
		}
		at += utf16.RuneLen(r)
	}
	if at == offset+length {
		return cutFrom(text, from, len(text))
	}
	return ""
}

func cutFrom(text string, from, to int) string {
	if from < 0 {
		return ""
	}
	return text[from:to]
}

// oneLine makes a text one line that shows all that is in it: no control character, and
// none that turns the direction of what follows.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
}

// name is what others called a thing, for a line in brackets: it cannot end them.
func name(parts ...string) string {
	joined := oneLine(strings.Join(parts, " "))
	joined = strings.NewReplacer("[", "(", "]", ")").Replace(joined)
	return fault.Cut(strings.Join(strings.Fields(joined), " "), maxName)
}

// says is the text of a message with a line for each thing attached to it, "" if it says
// nothing: it tells of a change of the chat.
func (m *message) says() string {
	var lines []string
	if m.Forward != nil {
		lines = append(lines, bracket("forwarded", m.Forward.who()))
	}
	text := strings.ReplaceAll(m.Text+m.Caption, "\x00", "")
	if text != "" {
		lines = append(lines, text)
	}
	attached := m.attachments()
	if text == "" && len(attached) == 0 {
		return ""
	}
	return strings.Join(append(lines, attached...), "\n")
}

func (o *origin) who() string {
	switch {
	case o.User != nil:
		return "from " + name(o.User.FirstName, o.User.LastName)
	case o.Sender != nil:
		return "from " + name(o.Sender.Title)
	case o.Chat != nil:
		return "from " + name(o.Chat.Title)
	case o.Hidden != "":
		return "from " + name(o.Hidden)
	}
	return ""
}

func bracket(kind, what string) string {
	if what == "" {
		return "[" + kind + "]"
	}
	return "[" + kind + " " + what + "]"
}

// called is a thing with its name.
func called(kind, what string) string {
	if what == "" {
		return "[" + kind + "]"
	}
	return "[" + kind + ": " + what + "]"
}

func lasting(kind string, m *media) string {
	return bracket(kind, fmt.Sprintf("%d s", max(m.Duration, 0)))
}

// attachments is a line for each thing that is attached. Telegram shows an animation as a
// file too, and a place as a location too.
func (m *message) attachments() (lines []string) {
	add := func(is bool, line func() string) {
		if is {
			lines = append(lines, line())
		}
	}
	plain := func(kind string) func() string { return func() string { return "[" + kind + "]" } }
	add(bool(m.Photo), plain("photo"))
	add(m.Voice != nil, func() string { return lasting("voice", m.Voice) })
	add(m.VideoNote != nil, func() string { return lasting("video message", m.VideoNote) })
	add(m.Video != nil, func() string { return lasting("video", m.Video) })
	add(bool(m.Animation), plain("animation"))
	add(m.Audio != nil, func() string { return called("audio", name(m.Audio.Title, m.Audio.Name)) })
	add(m.Document != nil && !bool(m.Animation), func() string { return called("file", name(m.Document.Name)) })
	add(m.Sticker != nil, func() string { return bracket("sticker", name(m.Sticker.Emoji)) })
	add(m.Venue != nil, func() string { return called("place", name(m.Venue.Title)) })
	add(m.Location != nil, func() string {
		return bracket("location", fmt.Sprintf("%.5f, %.5f", m.Location.Latitude, m.Location.Longitude))
	})
	add(m.Contact != nil, func() string { return called("contact", name(m.Contact.First, m.Contact.Last, m.Contact.Phone)) })
	add(m.Poll != nil, func() string { return called("poll", name(m.Poll.Question)) })
	add(m.Dice != nil, func() string { return bracket("dice", fmt.Sprint(m.Dice.Value)) })
	add(bool(m.Story), plain("story"))
	add(bool(m.Game), plain("game"))
	add(bool(m.Checklist), plain("checklist"))
	add(bool(m.PaidMedia), plain("paid media"))
	return lines
}
