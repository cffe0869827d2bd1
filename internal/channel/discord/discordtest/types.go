package discordtest

import "encoding/json"

// User is a user object.
type User struct {
	ID            string  `json:"id"`
	Username      string  `json:"username"`
	GlobalName    *string `json:"global_name"`
	Discriminator string  `json:"discriminator"`
	Bot           bool    `json:"bot,omitempty"`
}

// Member is what a message of a guild tells of its author beside the user.
type Member struct {
	Nick     *string  `json:"nick"`
	Roles    []string `json:"roles"`
	JoinedAt string   `json:"joined_at"`
	Deaf     bool     `json:"deaf"`
	Mute     bool     `json:"mute"`
}

// Attachment is a file at a message.
type Attachment struct {
	ID          string `json:"id"`
	Filename    string `json:"filename"`
	ContentType string `json:"content_type,omitempty"`
	Size        int    `json:"size"`
	URL         string `json:"url"`
}

// Reference points at the message that is answered.
type Reference struct {
	Type            int    `json:"type"`
	MessageID       string `json:"message_id,omitempty"`
	ChannelID       string `json:"channel_id,omitempty"`
	GuildID         string `json:"guild_id,omitempty"`
	FailIfNotExists *bool  `json:"fail_if_not_exists,omitempty"`
}

// Component is a row or a button.
type Component struct {
	Type       int         `json:"type"`
	Components []Component `json:"components,omitempty"`
	Style      int         `json:"style,omitempty"`
	Label      string      `json:"label,omitempty"`
	CustomID   string      `json:"custom_id,omitempty"`
	URL        string      `json:"url,omitempty"`
}

// Message is a message object. Say fills in what is empty and not optional.
type Message struct {
	ID                string          `json:"id"`
	Type              int             `json:"type"`
	ChannelID         string          `json:"channel_id"`
	GuildID           string          `json:"guild_id,omitempty"` // in events only
	Author            User            `json:"author"`
	Member            *Member         `json:"member,omitempty"` // in events only
	Content           string          `json:"content"`
	Timestamp         string          `json:"timestamp"`
	EditedTimestamp   *string         `json:"edited_timestamp"`
	TTS               bool            `json:"tts"`
	MentionEveryone   bool            `json:"mention_everyone"`
	Mentions          []User          `json:"mentions"`
	MentionRoles      []string        `json:"mention_roles"`
	Attachments       []Attachment    `json:"attachments"`
	Embeds            json.RawMessage `json:"embeds"`
	Components        []Component     `json:"components"`
	Pinned            bool            `json:"pinned"`
	Flags             int             `json:"flags"`
	WebhookID         string          `json:"webhook_id,omitempty"`
	Nonce             string          `json:"nonce,omitempty"`
	MessageReference  *Reference      `json:"message_reference,omitempty"`
	ReferencedMessage *Message        `json:"referenced_message,omitempty"`
}

// Channel is a channel object.
type Channel struct {
	ID         string `json:"id"`
	Type       int    `json:"type"` // 0 text of a guild, 1 direct, 11 public thread
	GuildID    string `json:"guild_id,omitempty"`
	ParentID   string `json:"parent_id,omitempty"`
	Name       string `json:"name,omitempty"`
	Last       string `json:"last_message_id,omitempty"`
	Recipients []User `json:"recipients,omitempty"`
}

// RoleTags say whose role it is.
type RoleTags struct {
	BotID string `json:"bot_id,omitempty"`
}

// Role is a role of a guild.
type Role struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	Managed bool      `json:"managed"`
	Tags    *RoleTags `json:"tags,omitempty"`
}

type guildMember struct {
	Member
	User User `json:"user"`
}

// guild is the payload of GUILD_CREATE.
type guild struct {
	ID          string        `json:"id"`
	Name        string        `json:"name"`
	Roles       []Role        `json:"roles"`
	Members     []guildMember `json:"members"`
	Channels    []Channel     `json:"channels"`
	Threads     []Channel     `json:"threads"`
	MemberCount int           `json:"member_count"`
}

// post is the body of a message that is made or changed.
type post struct {
	Content         *string      `json:"content"`
	Nonce           string       `json:"nonce"`
	EnforceNonce    bool         `json:"enforce_nonce"`
	TTS             bool         `json:"tts"`
	Flags           int          `json:"flags"`
	Components      *[]Component `json:"components"`
	Reference       *Reference   `json:"message_reference"`
	AllowedMentions *struct {
		Parse       []string `json:"parse"`
		RepliedUser bool     `json:"replied_user"`
	} `json:"allowed_mentions"`
}

type interaction struct {
	ID            string           `json:"id"`
	ApplicationID string           `json:"application_id"`
	Type          int              `json:"type"`
	Token         string           `json:"token"`
	Version       int              `json:"version"`
	ChannelID     string           `json:"channel_id"`
	GuildID       string           `json:"guild_id,omitempty"`
	Member        *guildMember     `json:"member,omitempty"`
	User          *User            `json:"user,omitempty"`
	Message       *Message         `json:"message"`
	Data          interactionPress `json:"data"`
}

type interactionPress struct {
	CustomID      string `json:"custom_id"`
	ComponentType int    `json:"component_type"`
}
