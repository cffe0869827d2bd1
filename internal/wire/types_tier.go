package wire

import (
	"encoding/json"

	"github.com/ombud-run/ombud/internal/fault"
)

// Adapter is a process that carries messages to and from a network of its own.
type Adapter struct {
	Name    string `json:"name"`
	Channel string `json:"channel"`            // as conversations and senders name it; channel.show and channel.set take it
	State   string `json:"state"`              // connecting, working, failing or held
	Reason  string `json:"reason,omitempty"`   // why it does not work
	AddedAt int64  `json:"added_at"`           // Unix µs
	AskedAt int64  `json:"asked_at,omitempty"` // when it last asked for messages, since the daemon started, Unix µs
	HeardAt int64  `json:"heard_at,omitempty"` // when it last delivered one, the same, Unix µs
	SaidAt  int64  `json:"said_at,omitempty"`  // when it last settled one as sent, the same, Unix µs
	Waiting int    `json:"waiting"`            // messages it is to send or to settle now
}

// AdapterAddRequest names a new adapter.
type AdapterAddRequest struct {
	Name string `json:"name"` // 1 to 32 of a-z, 0-9 and -
}

// AdapterAddResult holds the credential, which is told only here.
type AdapterAddResult struct {
	Adapter    Adapter `json:"adapter"`
	Credential string  `json:"credential"` // give it to the adapter and to nobody else
	Socket     string  `json:"socket"`     // where the adapter connects
}

// AdapterListResult is every adapter there is.
type AdapterListResult struct {
	Adapters []Adapter `json:"adapters"`
}

// AdapterRemoveRequest names the adapter whose credential is to end.
type AdapterRemoveRequest struct {
	Name string `json:"name"`
}

// PairedSender is somebody on a remote channel who is no stranger.
type PairedSender struct {
	ID       string `json:"id"`
	Standing string `json:"standing"`          // "operator" or "known"
	Channel  string `json:"channel"`           //
	Account  string `json:"account,omitempty"` // ours, on that channel
	User     string `json:"user"`              // the network's id of them
	Name     string `json:"name,omitempty"`    // as it was then
	Chat     string `json:"chat,omitempty"`    // the one direct chat the operator is the operator in
	AddedAt  int64  `json:"added_at"`          // Unix µs
}

// PairStartRequest asks for a code.
type PairStartRequest struct {
	Adapter string `json:"adapter,omitempty"` // the only one it is good on; empty: any
	Channel string `json:"channel,omitempty"` // the same for a channel that is no adapter
}

// PairStartResult is a code to be sent as "/pair CODE" from the chat to be paired.
type PairStartResult struct {
	Code      string `json:"code"`       // good once
	ExpiresAt int64  `json:"expires_at"` // Unix µs
}

// PairListResult is everybody who is paired or listed.
type PairListResult struct {
	Senders []PairedSender `json:"senders"`
}

// PairRemoveRequest names a sender who is to be a stranger again.
type PairRemoveRequest struct {
	ID string `json:"id"` // whole, or an unambiguous beginning
}

// PairAllowRequest lists a sender as known. It makes nobody the operator.
type PairAllowRequest struct {
	Adapter string `json:"adapter,omitempty"` // this, or Channel
	Channel string `json:"channel,omitempty"` // one that is no adapter
	Account string `json:"account,omitempty"` // ours, on its network; that of Channel if empty
	User    string `json:"user"`              // the network's id of them, not a name
	Name    string `json:"name,omitempty"`    // for you
}

// PairChangeResult is the sender that was listed or removed.
type PairChangeResult struct {
	Sender PairedSender `json:"sender"`
}

// JobTokenRequest holds the token of the job that asks.
type JobTokenRequest struct {
	Token string `json:"token"`
}

// JobCallRequest is a call a job wants made.
type JobCallRequest struct {
	Token string          `json:"token"`
	Tool  string          `json:"tool"`
	Input json.RawMessage `json:"input,omitempty"`  // an object that fits the tool's schema; absent: {}
	Key   string          `json:"key,omitempty"`    // the same key is the same call, however often it is sent; empty: each is new
	WaitS int             `json:"wait_s,omitempty"` // how long to wait for a person's decision before it is answered as waiting
}

// JobCallResult is what the call came to. One of class "waiting" was not made: ask
// again with its key.
type JobCallResult struct {
	RunID     string      `json:"run_id"`
	Status    string      `json:"status"`             // ok, failed, refused, parked, unknown
	Class     fault.Class `json:"class,omitempty"`    // of what is not ok
	Tool      string      `json:"tool"`               //
	Text      string      `json:"text"`               // of the result, cut at 64 KiB, or why there is none
	Cut       bool        `json:"cut,omitempty"`      // the output went over the tool's limit
	BlobID    string      `json:"blob_id,omitempty"`  // where the whole result is
	Approval  string      `json:"approval,omitempty"` // the question it waits for or was decided by
	Label     string      `json:"label,omitempty"`    // who wrote the result and who may read it
	Duplicate bool        `json:"duplicate"`          // the key was known
}

// JobTool is a tool a job can try.
type JobTool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Input       json.RawMessage `json:"input"`     // JSON Schema
	ReadOnly    bool            `json:"read_only"` // it changes nothing
}

// JobToolsResult answers job.tools.
type JobToolsResult struct {
	Tools []JobTool `json:"tools"`
}

// JobWhoamiResult is what a token is good for.
type JobWhoamiResult struct {
	ID           string   `json:"id"`
	Subject      string   `json:"subject"`                // who its calls are made as
	RunID        string   `json:"run_id"`                 // which it works for
	Conversation string   `json:"conversation,omitempty"` //
	Tier         string   `json:"tier"`                   // at most
	Role         string   `json:"role,omitempty"`         // of what it works for, whose bounds bind it
	Rules        []string `json:"rules"`                  // what it was given, within those bounds
	Label        string   `json:"label,omitempty"`        // of all it was shown
	CallsLeft    int      `json:"calls_left"`             //
	ExpiresAt    int64    `json:"expires_at"`             // Unix µs
}

// AdapterDeliverRequest is a message that came in over the adapter's network. Every
// id is the network's own. What ombud wrote itself is not delivered. In a group ombud goes
// by the facts: one that is not given is false, and one that is guessed makes ombud speak
// where nobody asked it.
type AdapterDeliverRequest struct {
	Credential string `json:"credential"`
	Account    string `json:"account,omitempty"`     // ours, on the network
	Chat       string `json:"chat"`                  //
	Thread     string `json:"thread,omitempty"`      //
	Title      string `json:"title,omitempty"`       // of the chat, for people
	Group      bool   `json:"group,omitempty"`       // others than the sender read the chat
	Sender     string `json:"sender"`                // user id
	SenderName string `json:"sender_name,omitempty"` //
	Text       string `json:"text"`                  // at most 1 MiB of UTF-8
	Key        string `json:"key"`                   // the network's id of the message, unique in its chat: the same key is the same message
	Bot        bool   `json:"bot,omitempty"`         // another program wrote it: it is never answered
	MentionsMe bool   `json:"mentions_me,omitempty"` // it names ombud by an id in its structure, not by its text alone
	QuotesMe   bool   `json:"quotes_me,omitempty"`   // it answers a message of ombud's
	Command    bool   `json:"command,omitempty"`     // it is a command to ombud
	Elsewhere  bool   `json:"elsewhere,omitempty"`   // it is a command to another program, by its name
	Forwarded  bool   `json:"forwarded,omitempty"`   // the sender passes on what somebody else wrote: it is data, whoever sends it
}

// AdapterDeliverResult is sent after the message is durable. It tells nothing of
// what ombud makes of it but whether it is for ombud.
type AdapterDeliverResult struct {
	EventID   string `json:"event_id"`
	Duplicate bool   `json:"duplicate"` // the key was known
	Addressed bool   `json:"addressed"` // false: it was taken, is kept as something that was overheard, and is not answered
}

// AdapterNextRequest asks for messages to be sent.
type AdapterNextRequest struct {
	Credential string `json:"credential"`
	Account    string `json:"account,omitempty"` // empty: of every account
	Limit      int    `json:"limit,omitempty"`   // 0: 32, which is the most
	WaitS      int    `json:"wait_s,omitempty"`  // how long to wait for one; at most 55
}

// AdapterOutgoing is a message to be sent and then settled by adapter.ack.
type AdapterOutgoing struct {
	Key     string `json:"key"`                // the same however often it is handed out
	Account string `json:"account,omitempty"`  //
	Chat    string `json:"chat"`               //
	Thread  string `json:"thread,omitempty"`   //
	Text    string `json:"text"`               // Markdown
	ReplyTo string `json:"reply_to,omitempty"` // the network's id of what it answers
	Again   bool   `json:"again"`              // it was handed out before: send it only if it surely was not sent; if you cannot tell, settle it as unknown
}

// AdapterNextResult answers adapter.next; empty when nothing came in time.
type AdapterNextResult struct {
	Messages []AdapterOutgoing `json:"messages"`
}

// AdapterAckRequest settles a message.
type AdapterAckRequest struct {
	Credential  string `json:"credential"`
	Key         string `json:"key"`
	Result      string `json:"result"`                  // sent; not_sent: surely not, try again; refused: surely not and never; unknown
	Ref         string `json:"ref,omitempty"`           // of sent: the network's id of it
	Error       string `json:"error,omitempty"`         // of the others, for people
	RetryAfterS int    `json:"retry_after_s,omitempty"` // of not_sent
}
