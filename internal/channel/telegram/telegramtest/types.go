package telegramtest

// User is a person or a bot, as the Bot API shows one.
type User struct {
	ID        int64  `json:"id"`
	IsBot     bool   `json:"is_bot"`
	FirstName string `json:"first_name"`
	LastName  string `json:"last_name,omitempty"`
	Username  string `json:"username,omitempty"`
	Language  string `json:"language_code,omitempty"`
	JoinsAny  bool   `json:"can_join_groups,omitempty"`             // of getMe only
	ReadsAll  bool   `json:"can_read_all_group_messages,omitempty"` // of getMe only: privacy mode is off
}

// The types of chat.
const (
	Private    = "private"
	Group      = "group"
	Supergroup = "supergroup"
	Channel    = "channel"
)

// Chat is where messages are.
type Chat struct {
	ID        int64  `json:"id"`
	Type      string `json:"type"`
	Title     string `json:"title,omitempty"`
	Username  string `json:"username,omitempty"`
	FirstName string `json:"first_name,omitempty"`
	LastName  string `json:"last_name,omitempty"`
	IsForum   bool   `json:"is_forum,omitempty"`
}

// Entity is the formatting or the meaning of a part of a text, in UTF-16 units.
type Entity struct {
	Type     string `json:"type"`
	Offset   int    `json:"offset"`
	Length   int    `json:"length"`
	URL      string `json:"url,omitempty"`
	User     *User  `json:"user,omitempty"` // of a text_mention
	Language string `json:"language,omitempty"`
}

// Photo is one size of a picture.
type Photo struct {
	FileID   string `json:"file_id"`
	UniqueID string `json:"file_unique_id"`
	Width    int    `json:"width"`
	Height   int    `json:"height"`
	Size     int    `json:"file_size,omitempty"`
}

// File is a voice message, a document, a video or a piece of music.
type File struct {
	FileID   string `json:"file_id"`
	UniqueID string `json:"file_unique_id"`
	Duration int    `json:"duration,omitempty"` // seconds
	Name     string `json:"file_name,omitempty"`
	MIME     string `json:"mime_type,omitempty"`
	Size     int64  `json:"file_size,omitempty"`
}

// Topic is in the service message that a topic begins with.
type Topic struct {
	Name  string `json:"name"`
	Color int    `json:"icon_color"`
}

// Origin is where a forwarded message comes from.
type Origin struct {
	Type       string `json:"type"` // user, hidden_user, chat or channel
	Date       int64  `json:"date"`
	User       *User  `json:"sender_user,omitempty"`
	HiddenName string `json:"sender_user_name,omitempty"`
	SenderChat *Chat  `json:"sender_chat,omitempty"`
	Chat       *Chat  `json:"chat,omitempty"`
	MessageID  int    `json:"message_id,omitempty"`
}

// Button is a button below a message.
type Button struct {
	Text string `json:"text"`
	Data string `json:"callback_data,omitempty"`
	URL  string `json:"url,omitempty"`
}

// Keyboard is the rows of buttons below a message.
type Keyboard struct {
	Rows [][]Button `json:"inline_keyboard"`
}

// Message is a message, with the fields that a bot may look at.
type Message struct {
	ID              int       `json:"message_id"`
	Thread          int       `json:"message_thread_id,omitempty"`
	From            *User     `json:"from,omitempty"`
	SenderChat      *Chat     `json:"sender_chat,omitempty"`
	Date            int64     `json:"date"`
	Chat            Chat      `json:"chat"`
	Forward         *Origin   `json:"forward_origin,omitempty"`
	IsTopic         bool      `json:"is_topic_message,omitempty"`
	AutoForward     bool      `json:"is_automatic_forward,omitempty"`
	ReplyTo         *Message  `json:"reply_to_message,omitempty"`
	ViaBot          *User     `json:"via_bot,omitempty"`
	EditDate        int64     `json:"edit_date,omitempty"`
	Signature       string    `json:"author_signature,omitempty"`
	Text            string    `json:"text,omitempty"`
	Entities        []Entity  `json:"entities,omitempty"`
	Photo           []Photo   `json:"photo,omitempty"`
	Voice           *File     `json:"voice,omitempty"`
	Document        *File     `json:"document,omitempty"`
	Video           *File     `json:"video,omitempty"`
	Audio           *File     `json:"audio,omitempty"`
	Caption         string    `json:"caption,omitempty"`
	CaptionEntities []Entity  `json:"caption_entities,omitempty"`
	NewMembers      []User    `json:"new_chat_members,omitempty"`
	MigrateTo       int64     `json:"migrate_to_chat_id,omitempty"`
	MigrateFrom     int64     `json:"migrate_from_chat_id,omitempty"`
	TopicCreated    *Topic    `json:"forum_topic_created,omitempty"`
	Markup          *Keyboard `json:"reply_markup,omitempty"`
}

// CallbackQuery is the press of a button.
type CallbackQuery struct {
	ID       string   `json:"id"`
	From     User     `json:"from"`
	Message  *Message `json:"message,omitempty"`
	Instance string   `json:"chat_instance"`
	Data     string   `json:"data,omitempty"`
}

// Membership is what somebody is in a chat.
type Membership struct {
	Status string `json:"status"` // creator, administrator, member, restricted, left, kicked
	User   User   `json:"user"`
}

// MemberUpdate tells that a membership changed.
type MemberUpdate struct {
	Chat Chat       `json:"chat"`
	From User       `json:"from"`
	Date int64      `json:"date"`
	Old  Membership `json:"old_chat_member"`
	New  Membership `json:"new_chat_member"`
}

// Update is what getUpdates returns a list of. It has one field beside its id.
type Update struct {
	ID           int64          `json:"update_id"`
	Message      *Message       `json:"message,omitempty"`
	Edited       *Message       `json:"edited_message,omitempty"`
	ChannelPost  *Message       `json:"channel_post,omitempty"`
	EditedPost   *Message       `json:"edited_channel_post,omitempty"`
	Callback     *CallbackQuery `json:"callback_query,omitempty"`
	MyMembership *MemberUpdate  `json:"my_chat_member,omitempty"`
	OtherMember  *MemberUpdate  `json:"chat_member,omitempty"`
	kind         string         // of an update that a test wrote as JSON
	raw          []byte
	at           int64 // Unix seconds at which it was made
}
