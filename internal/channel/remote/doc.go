// Package remote is the channel whose other end is an adapter: a process of its
// own that carries messages between ombud and a chat network. It connects to
// agent.sock with a credential, and what it says of itself counts for nothing else.
//
// # What comes in
//
// Deliver hands a message over; it is answered when it is durable. The same key
// again is the same message. How much a message may do depends on its sender alone:
// the operator's paired identity in its direct chat is [policy.Paired], somebody the
// operator listed is [policy.SemiTrusted], everybody else, in every chat, is
// [policy.Untrusted]. With nobody paired, nobody is the operator. What anybody but
// the operator wrote is labelled as theirs, and whatever a message says, all it can
// change of authority is to use up a pairing code.
//
// Whether it is answered is decided as for every channel ([channel.Judging]), by the facts
// the adapter tells and what the operator has said of it (Set): strangers and groups that
// are not listed are events, and the adapter is told that they are not addressed. Settings
// are read from their row for each message; what cannot be opened lets nothing in or out.
//
// # What goes out
//
// The outbox sends through a Sender per adapter. An item waits for the adapter to
// ask (Next), is handed out under its id as key, and is settled by Ack: sent with
// the network's own id, not sent, or unknown. An item that no adapter took was
// surely not sent. One that was taken and not settled in time is handed out again,
// marked Again, as is one found in flight after a crash: an adapter that knows the
// key settles it without sending; one that cannot tell says unknown, and a person
// decides. An Ack that comes late still settles its item.
//
// # What survives a crash
//
// The outbox. What was handed out is in memory only: the outbox asks again.
package remote
