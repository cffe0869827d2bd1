package discord

import (
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/bwmarrin/discordgo"

	"github.com/ombud-run/ombud/internal/channel"
	"github.com/ombud-run/ombud/internal/fault"
)

// maxExtra bounds what is told of an embed or a name of a file.
const maxExtra = 300

// written reports whether somebody wrote a message: all other types tell of joins, pins and
// the like.
func written(m message) bool {
	return (m.Type == discordgo.MessageTypeDefault || m.Type == discordgo.MessageTypeReply) &&
		snowflake(m.ID) && snowflake(m.ChannelID) && snowflake(m.Author.ID)
}

// known are the names of a guild's roles and channels, and the roles ombud has.
type known interface {
	roleName(guild, id string) string
	roomName(guild, id string) string
	isMine(guild, role string) bool
}

// received is a message as a channel has it. The guild of one that was read, and not told
// of by an event, is in its room.
func received(m message, me channel.Me, in room, k known) channel.Received {
	r := channel.Received{
		ID: m.ID, Chat: m.ChannelID, Group: in.GuildID != "",
		Sender: m.Author.ID, SenderName: nameOf(m.Author, m.Member), At: timeOf(m.ID),
		Own: me.Is(m.Author.ID), Bot: m.Author.Bot || m.WebhookID != "",
	}
	m.Content, r.Command = command(m.Content, me, r.Group)
	r.Text = textOf(m, me, in.GuildID, k)
	r.MentionsMe = slices.ContainsFunc(m.Mentions, func(u user) bool { return me.Is(u.ID) }) ||
		slices.ContainsFunc(m.MentionRoles, func(id string) bool { return k.isMine(in.GuildID, id) })
	// A reply names its author in mentions unless the ping was turned off; this counts both.
	r.QuotesMe = m.Referenced != nil && me.Is(m.Referenced.Author.ID)
	switch {
	case in.Name != "":
		r.Title = "#" + in.Name
	case !r.Group:
		r.Title = r.SenderName
	}
	return r
}

// command reports whether a text begins with a slash, after a mention of ombud or in a
// direct chat, and returns it without that mention: commands are known by their first word.
func command(text string, me channel.Me, group bool) (string, bool) {
	if id, rest, ok := leading(strings.TrimSpace(text)); ok && me.Is(id) && strings.HasPrefix(strings.TrimSpace(rest), "/") {
		return strings.TrimSpace(rest), true
	}
	return text, !group && strings.HasPrefix(strings.TrimSpace(text), "/")
}

// leading splits off the mention of a user that a text begins with.
func leading(text string) (id, rest string, ok bool) {
	inner, ok := strings.CutPrefix(text, "<@")
	if !ok {
		return "", "", false
	}
	id, rest, ok = strings.Cut(strings.TrimPrefix(inner, "!"), ">")
	return id, rest, ok && snowflake(id)
}

func nameOf(u user, m *member) string {
	switch {
	case m != nil && m.Nick != "":
		return m.Nick
	case u.GlobalName != "":
		return u.GlobalName
	}
	return u.Username
}

var markers = regexp.MustCompile(`<(@!|@&|@|#|a?:[A-Za-z0-9_~]{1,64}:)([0-9]{1,20})>`)

// readable replaces the ids in a text by names.
func readable(text string, m message, me channel.Me, guild string, k known) string {
	return markers.ReplaceAllStringFunc(text, func(found string) string {
		parts := markers.FindStringSubmatch(found)
		kind, id := parts[1], parts[2]
		switch {
		case kind == "@" || kind == "@!":
			if me.Is(id) && len(me.Names) > 0 {
				return "@" + me.Names[0]
			}
			if i := slices.IndexFunc(m.Mentions, func(u user) bool { return u.ID == id }); i >= 0 {
				return "@" + nameOf(m.Mentions[i], nil)
			}
		case kind == "@&" && k.roleName(guild, id) != "":
			return "@" + k.roleName(guild, id)
		case kind == "#" && k.roomName(guild, id) != "":
			return "#" + k.roomName(guild, id)
		case strings.HasSuffix(kind, ":"):
			return strings.TrimPrefix(kind, "a")
		}
		return found
	})
}

// textOf is what a message says, with a line for what is no text.
func textOf(m message, me channel.Me, guild string, k known) string {
	read := func(text string) string { return readable(text, m, me, guild, k) }
	lines := m.lines(read)
	for _, s := range m.Snapshots {
		lines = append(lines, "[forwarded message]")
		lines = append(lines, s.Message.lines(read)...)
	}
	return strings.Join(lines, "\n")
}

func (b body) lines(read func(string) string) (out []string) {
	if text := strings.TrimSpace(b.Content); text != "" {
		out = append(out, read(text))
	}
	for _, a := range b.Attachments {
		out = append(out, line(kindOf(a.ContentType), a.Filename))
	}
	for _, s := range b.Stickers {
		out = append(out, line("sticker", s.Name))
	}
	if b.Poll != nil {
		out = append(out, line("poll", b.Poll.Question.Text))
	}
	for _, e := range b.Embeds {
		if b.Content == "" && e.Title+e.Description != "" { // else it is the preview of a link in the text
			out = append(out, line("embed", strings.Trim(e.Title+": "+e.Description, ": ")))
		}
	}
	return out
}

// line tells of something in one line that nobody can forge a second one with.
func line(kind, name string) string {
	name = strings.Join(strings.FieldsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f || r == utf8.RuneError }), " ")
	return "[" + kind + ": " + fault.Cut(strings.NewReplacer("[", "(", "]", ")").Replace(name), maxExtra) + "]"
}

func kindOf(contentType string) string {
	switch major, _, _ := strings.Cut(contentType, "/"); major {
	case "image", "audio", "video":
		return major
	}
	return "file"
}

// customID is that of a button, and pressOf reads it back.
func customID(approval string, yes bool) string {
	if yes {
		return "ombud:" + approval + ":y"
	}
	return "ombud:" + approval + ":n"
}

func pressOf(customID string) (approval string, yes, ok bool) {
	rest, ok := strings.CutPrefix(customID, "ombud:")
	if !ok || len(rest) < 3 {
		return "", false, false
	}
	approval, answer := rest[:len(rest)-2], rest[len(rest)-2:]
	return approval, answer == ":y", answer == ":y" || answer == ":n"
}

// pressed is the press of a button as a channel has it; false if it is none of ombud's.
func pressed(p press, in room) (channel.Received, bool) {
	approval, yes, ok := pressOf(p.Data.CustomID)
	if !ok || p.Type != discordgo.InteractionMessageComponent || p.Message == nil || !snowflake(p.ID) || !snowflake(p.ChannelID) {
		return channel.Received{}, false
	}
	u := p.User
	if p.Member != nil && p.Member.User != nil {
		u = p.Member.User
	}
	if u == nil || !snowflake(u.ID) {
		return channel.Received{}, false
	}
	r := channel.Received{
		ID: p.ID, Chat: p.ChannelID, Group: p.GuildID != "", Sender: u.ID, SenderName: nameOf(*u, p.Member), Bot: u.Bot,
		Text: labelOf(yes), At: timeOf(p.ID), Press: &channel.Press{Approval: approval, Yes: yes, Ref: p.Message.ID},
	}
	switch {
	case in.Name != "":
		r.Title = "#" + in.Name
	case !r.Group:
		r.Title = r.SenderName
	}
	return r, true
}

func labelOf(yes bool) string {
	if yes {
		return "Approve"
	}
	return "Deny"
}
