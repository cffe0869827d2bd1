package telegram

import "encoding/json"

// The types of an update have only the fields that are looked at. A field that Telegram
// adds, or changes, beside those cannot make a message unreadable; the types of a library
// that know all of them refuse a whole update for one unknown kind of forward or member.

type user struct {
	ID        int64  `json:"id"`
	IsBot     bool   `json:"is_bot"`
	FirstName string `json:"first_name"`
	LastName  string `json:"last_name"`
	Username  string `json:"username"`
}

type chat struct {
	ID        int64  `json:"id"`
	Type      string `json:"type"`
	Title     string `json:"title"`
	FirstName string `json:"first_name"`
	LastName  string `json:"last_name"`
	Username  string `json:"username"`
}

// entity marks a part of a text, in UTF-16 units.
type entity struct {
	Type   string `json:"type"`
	Offset int    `json:"offset"`
	Length int    `json:"length"`
	User   *user  `json:"user"`
}

// there is whether a field is there, whatever it holds.
type there bool

// UnmarshalJSON takes any value.
func (t *there) UnmarshalJSON(data []byte) error {
	*t = string(data) != "null"
	return nil
}

// media is what is attached: a file, or what is known of it.
type media struct {
	Duration int    `json:"duration"` // seconds
	Name     string `json:"file_name"`
	Title    string `json:"title"`
	Emoji    string `json:"emoji"`
	Question string `json:"question"`
	First    string `json:"first_name"`
	Last     string `json:"last_name"`
	Phone    string `json:"phone_number"`
	Value    int    `json:"value"`
}

type location struct {
	Latitude  float64 `json:"latitude"`
	Longitude float64 `json:"longitude"`
}

// origin is where a forwarded message comes from.
type origin struct {
	User   *user  `json:"sender_user"`
	Hidden string `json:"sender_user_name"`
	Sender *chat  `json:"sender_chat"`
	Chat   *chat  `json:"chat"`
}

// answered is the message that another one answers.
type answered struct {
	ID           int   `json:"message_id"`
	From         *user `json:"from"`
	TopicCreated there `json:"forum_topic_created"`
}

type message struct {
	ID         int       `json:"message_id"`
	Thread     int       `json:"message_thread_id"`
	IsTopic    bool      `json:"is_topic_message"`
	From       *user     `json:"from"`
	SenderChat *chat     `json:"sender_chat"`
	Date       int64     `json:"date"`
	Chat       chat      `json:"chat"`
	Forward    *origin   `json:"forward_origin"`
	ReplyTo    *answered `json:"reply_to_message"`
	Signature  string    `json:"author_signature"`
	MigrateTo  int64     `json:"migrate_to_chat_id"`

	Text            string   `json:"text"`
	Entities        []entity `json:"entities"`
	Caption         string   `json:"caption"`
	CaptionEntities []entity `json:"caption_entities"`

	Photo     there     `json:"photo"`
	Voice     *media    `json:"voice"`
	VideoNote *media    `json:"video_note"`
	Video     *media    `json:"video"`
	Animation there     `json:"animation"`
	Audio     *media    `json:"audio"`
	Document  *media    `json:"document"`
	Sticker   *media    `json:"sticker"`
	Venue     *media    `json:"venue"`
	Location  *location `json:"location"`
	Contact   *media    `json:"contact"`
	Poll      *media    `json:"poll"`
	Dice      *media    `json:"dice"`
	Story     there     `json:"story"`
	Game      there     `json:"game"`
	Checklist there     `json:"checklist"`
	PaidMedia there     `json:"paid_media"`
}

// press is a callback query: somebody pressed a button.
type press struct {
	ID      string   `json:"id"`
	From    user     `json:"from"`
	Message *message `json:"message"` // with its chat and id alone if it is too old
	Data    string   `json:"data"`
}

// membership tells what the bot has become in a chat.
type membership struct {
	Chat chat `json:"chat"`
	New  struct {
		Status string `json:"status"`
	} `json:"new_chat_member"`
}

type update struct {
	ID         int64       `json:"update_id"`
	Message    *message    `json:"message"`
	Post       *message    `json:"channel_post"`
	Press      *press      `json:"callback_query"`
	Membership *membership `json:"my_chat_member"`

	broken error // its content could not be read
}

// wanted are the kinds of update that are asked for. Changed messages are none of them:
// what ombud did with the first text is done.
var wanted = []string{"message", "channel_post", "callback_query", "my_chat_member"}

// decode reads an update. It is broken, and has its id, if the rest cannot be read; the
// error is that of one whose id cannot be read.
func decode(data []byte) (update, error) {
	var u update
	err := json.Unmarshal(data, &u)
	if err == nil && u.ID > 0 {
		return u, nil
	}
	var head struct {
		ID int64 `json:"update_id"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return update{}, err
	}
	return update{ID: head.ID, broken: err}, nil
}
