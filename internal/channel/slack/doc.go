// Package slack is the adapter of Slack: Socket Mode for what comes in, the Web API for
// what goes out.
//
// # What comes in
//
// Slack sends envelopes through a socket and wants each acknowledged within 3 seconds; one
// that is not comes again, up to three times in five minutes. An envelope is acknowledged
// when [channel.Intake] has it durably, and not before; one that comes again is treated as
// any other, because it may be the only copy. A message is told of once as message and, if
// it names ombud, once as app_mention: its id is its ts, so both are one.
//
// A message that names ombud at the top of a channel begins a conversation in its own
// thread: the answer goes there, and so does what follows. In direct chats the chat is the
// conversation.
//
// Slack keeps nothing for an app that is not connected. The cursor holds, for the channels
// seen, the ts up to which everything was taken in; after each time without a socket what
// came later is read from the history, a channel at a time, newest channels first, and
// before a live message of that channel where that is possible.
//
// # What goes out
//
// Each message carries the key of its piece in its metadata, which is read back when it is
// not known whether a try arrived. Metadata can be written by any app, so only that of
// ombud's own messages counts.
//
// # Failure
//
// A refused token ends Run with Denied; all else is tried again, after 1 to 60 seconds or
// when Slack says. A socket that Slack is about to close is replaced before it closes.
// Names of people and channels are looked up within one second or left out.
//
// # Why no client library
//
// The client of github.com/slack-go/slack takes an answer of {} for success, an answer is
// decoded whole or not at all (so one message of an unknown shape would hide a page of
// history), and its socketmode closes a socket before it opens the next, gives no reason of
// a disconnect, and leaves a goroutine when it returns.
package slack
