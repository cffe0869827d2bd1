package wire

// Channel is a chat network ombud is connected to.
type Channel struct {
	Name      string         `json:"name"`
	Kind      string         `json:"kind"`
	State     string         `json:"state"`              // connecting, working, degraded, failing, paused or held
	Reason    string         `json:"reason,omitempty"`   // why it does not work
	SinceAt   int64          `json:"since_at,omitempty"` // when it came into its state, Unix µs
	Account   string         `json:"account,omitempty"`  // who ombud is there, by the network's id
	Title     string         `json:"title,omitempty"`    // the same for people, such as @mybot
	AddedAt   int64          `json:"added_at"`           // Unix µs
	HeardAt   int64          `json:"heard_at,omitempty"` // when the last message came in since the start, Unix µs
	SaidAt    int64          `json:"said_at,omitempty"`  // when the last one went out, Unix µs
	Waiting   int64          `json:"waiting"`            // messages that wait to go out
	Values    []ChannelValue `json:"values,omitempty"`   // what its kind is set up with, without secrets
	Agent     string         `json:"agent,omitempty"`    // who answers; the default if empty
	Strangers string         `json:"strangers"`          // who else is answered: ignore (nobody), groups or all
	Groups    []ChannelGroup `json:"groups,omitempty"`   // those that are listed, and those that were seen
	Quiet     string         `json:"quiet,omitempty"`    // HH:MM-HH:MM ZONE
	Away      bool           `json:"away,omitempty"`     // what nobody waits for is kept back
	Rate      int            `json:"rate"`               // messages a minute to one chat
	Stream    bool           `json:"stream,omitempty"`   // answers to you are shown as they are written
	Notices   bool           `json:"notices,omitempty"`  // what you are told is also told in your paired chats there
	Limit     int            `json:"limit,omitempty"`    // characters of one message of the network
	Buttons   bool           `json:"buttons,omitempty"`  // questions have buttons
	Hook      string         `json:"hook,omitempty"`     // the path its network calls
}

// ChannelValue is a setting.
type ChannelValue struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// ChannelSecret is a secret that a channel is set up with.
type ChannelSecret struct {
	Part  string `json:"part"`  // which of those its kind needs
	Value []byte `json:"value"` // base64
}

// ChannelGroup is a group chat.
type ChannelGroup struct {
	Chat  string `json:"chat"`            // the network's id of it
	Title string `json:"title,omitempty"` //
	Mode  string `json:"mode"`            // mention, always or never
}

// ChannelListResult is every channel there is.
type ChannelListResult struct {
	Channels []Channel `json:"channels"`
}

// ChannelKind is a kind of channel that can be added.
type ChannelKind struct {
	Name  string        `json:"name"`
	About string        `json:"about"`
	Needs []ChannelPart `json:"needs"` // in the order they are asked for
}

// ChannelPart is something a channel is set up with.
type ChannelPart struct {
	Name     string `json:"name"`
	About    string `json:"about"`
	Secret   bool   `json:"secret,omitempty"`
	Optional bool   `json:"optional,omitempty"`
	Default  string `json:"default,omitempty"`
}

// ChannelKindsResult is what can be added.
type ChannelKindsResult struct {
	Kinds []ChannelKind `json:"kinds"`
}

// ChannelAddRequest adds a channel.
type ChannelAddRequest struct {
	Kind      string          `json:"kind"`
	Name      string          `json:"name,omitempty"`      // that of its kind if empty
	Values    []ChannelValue  `json:"values,omitempty"`    // settings, and what its kind needs
	Secrets   []ChannelSecret `json:"secrets,omitempty"`   // what of it is secret; one left out is the secret channel.NAME.PART
	Unchecked bool            `json:"unchecked,omitempty"` // add it also if its network cannot be asked
}

// ChannelResult is one channel.
type ChannelResult struct {
	Channel Channel `json:"channel"`
}

// ChannelRequest names a channel.
type ChannelRequest struct {
	Name string `json:"name"`
}

// ChannelSetRequest changes the settings of a channel, all or none.
type ChannelSetRequest struct {
	Name    string          `json:"name"`
	Values  []string        `json:"values,omitempty"`  // NAME=VALUE, in this order
	Secrets []ChannelSecret `json:"secrets,omitempty"` // new values of what is secret
}

// SendRequest sends a message as the operator.
type SendRequest struct {
	To   string `json:"to"`            // operator, local:NAME, CHANNEL:CHAT, CHANNEL:CHAT/THREAD, or the id of a conversation
	Text string `json:"text"`          // Markdown
	Key  string `json:"key,omitempty"` // the same key is the same message, however often it is sent
}

// SendResult is a message in the outbox.
type SendResult struct {
	ItemID       string `json:"item_id"`
	Conversation string `json:"conversation_id"`
	State        string `json:"state"`         // queued, sending, delivered, uncertain, failed or skipped
	Ref          string `json:"ref,omitempty"` // the network's id of it
	Error        string `json:"error,omitempty"`
}

// SendStateRequest asks what became of a message.
type SendStateRequest struct {
	ItemID string `json:"item_id"`
	WaitS  int    `json:"wait_s,omitempty"` // how long to wait for it to go out
}
