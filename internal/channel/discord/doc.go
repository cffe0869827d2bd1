// Package discord is the adapter of Discord: a bot that reads and writes text.
//
// # The library
//
// Of github.com/bwmarrin/discordgo v0.29.0 it takes constants and the types of what it
// sends. It does not take the Session, for these reasons.
//
// The Gateway: reconnect (wsapi.go) tries for ever whatever the close code says, sleeps up
// to 600 s and cannot be stopped; op 9 is answered by identifying within the old session,
// whose id and sequence stay, resumable or not; a connection is thought dead after five
// intervals without an acknowledgement; the session is started by GET /gateway, which does
// not tell how many sessions may still be started; the sequence is stored before a handler
// has run, so that resuming skips what was not kept; Close sleeps for a second under the
// lock; at its debug level it logs the identify packet with the token, by a global logger.
//
// REST: a 502 is tried again up to three times (restapi.go, RequestWithLockedBucket), a POST
// too, which doubles a message; a bucket that is used up is waited for by time.Sleep without
// a context (ratelimit.go, LockBucketObject); the reset header is parsed before the status
// is looked at, so that an odd header hides a message that was sent; MessageSend has no
// nonce; answers are read without a bound. Reading: Message.UnmarshalJSON fails as a whole
// at one component of a type it does not know (components.go), and the message is lost.
//
// # What comes in
//
// One goroutine hands events over, in the order they came. The sequence that a session is
// resumed from, and that heartbeats acknowledge, is that of the last event that was taken
// in, so what a crash of the store or a broken connection left in between comes again. The
// cursor is the last message of each of the 500 channels that were written in last. A new
// session begins with reading what was written in them since, and in those channels of
// guilds in which somebody wrote for the first time. A message of a channel that cannot be
// read just then is taken in without moving the channel's cursor.
//
// # What goes out
//
// A message carries a digest of its key as a nonce that Discord enforces: for some minutes
// the same piece again makes no second message. Nothing is tried again here.
package discord
