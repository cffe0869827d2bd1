package discord

import (
	"encoding/json"

	"github.com/bwmarrin/discordgo"

	"github.com/ombud-run/ombud/internal/channel"
)

// The parts of Discord's objects that are read. They are few and plain on purpose: what
// is not named cannot make the decoding of a message fail.

type user struct {
	ID         string `json:"id"`
	Username   string `json:"username"`
	GlobalName string `json:"global_name"`
	Bot        bool   `json:"bot"`
}

type member struct {
	Nick  string   `json:"nick"`
	Roles []string `json:"roles"`
	User  *user    `json:"user"`
}

type attachment struct {
	Filename    string `json:"filename"`
	ContentType string `json:"content_type"`
}

type named struct {
	Name string `json:"name"`
}

type embed struct {
	Title       string `json:"title"`
	Description string `json:"description"`
}

// body is what a message says, and what a forwarded one said.
type body struct {
	Content     string       `json:"content"`
	Attachments []attachment `json:"attachments"`
	Stickers    []named      `json:"sticker_items"`
	Embeds      []embed      `json:"embeds"`
	Poll        *struct {
		Question struct {
			Text string `json:"text"`
		} `json:"question"`
	} `json:"poll"`
}

type message struct {
	body
	ID           string                `json:"id"`
	Type         discordgo.MessageType `json:"type"`
	ChannelID    string                `json:"channel_id"`
	GuildID      string                `json:"guild_id"` // in events only
	Author       user                  `json:"author"`
	Member       *member               `json:"member"` // in events only
	WebhookID    string                `json:"webhook_id"`
	Nonce        json.RawMessage       `json:"nonce"` // text or number
	Mentions     []user                `json:"mentions"`
	MentionRoles []string              `json:"mention_roles"`
	Referenced   *struct {
		Author user `json:"author"`
	} `json:"referenced_message"`
	Snapshots []struct {
		Message body `json:"message"`
	} `json:"message_snapshots"`
}

type press struct {
	ID        string                    `json:"id"`
	Type      discordgo.InteractionType `json:"type"`
	Token     string                    `json:"token"`
	ChannelID string                    `json:"channel_id"`
	GuildID   string                    `json:"guild_id"`
	Member    *member                   `json:"member"`
	User      *user                     `json:"user"`
	Message   *struct {
		ID string `json:"id"`
	} `json:"message"`
	Data struct {
		CustomID string `json:"custom_id"`
	} `json:"data"`
}

type room struct {
	ID      string                `json:"id"`
	Type    discordgo.ChannelType `json:"type"`
	GuildID string                `json:"guild_id"`
	Name    string                `json:"name"`
	Last    string                `json:"last_message_id"` // there may be none any more with it
}

type role struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	Tags *struct {
		BotID string `json:"bot_id"`
	} `json:"tags"`
}

type server struct {
	ID          string               `json:"id"`
	Unavailable bool                 `json:"unavailable"`
	Roles       channel.Rows[role]   `json:"roles"`
	Members     channel.Rows[member] `json:"members"`
	Channels    channel.Rows[room]   `json:"channels"`
	Threads     channel.Rows[room]   `json:"threads"`
}

type roleEvent struct {
	GuildID string `json:"guild_id"`
	RoleID  string `json:"role_id"` // of one that was deleted
	Role    role   `json:"role"`
}

type memberEvent struct {
	GuildID string `json:"guild_id"`
	member
}

// frame is a message of the Gateway.
type frame struct {
	Op   int             `json:"op"`
	Data json.RawMessage `json:"d"`
	Seq  *int64          `json:"s"`
	Name string          `json:"t"`
}

type hello struct {
	Interval float64 `json:"heartbeat_interval"` // in milliseconds
}

type ready struct {
	User    user                 `json:"user"`
	Session string               `json:"session_id"`
	Resume  string               `json:"resume_gateway_url"`
	Guilds  channel.Rows[server] `json:"guilds"`
}

// said is a frame of ours.
type said[T any] struct {
	Op   int `json:"op"`
	Data T   `json:"d"`
}

type identify struct {
	Token      string           `json:"token"`
	Intents    discordgo.Intent `json:"intents"`
	Properties properties       `json:"properties"`
}

type properties struct {
	OS      string `json:"os"`
	Browser string `json:"browser"`
	Device  string `json:"device"`
}

type resume struct {
	Token   string `json:"token"`
	Session string `json:"session_id"`
	Seq     int64  `json:"seq"`
}
