// Package channel is what ombud hears and speaks through: chat networks, each behind an
// [Adapter] that knows its protocol and nothing else.
//
// # What comes in
//
// An adapter hands over what a network says was written ([Received]) with the facts that
// only it can read out of a payload: who is named by their id, whose message is answered,
// which command it is. Take returns when that is durable, with the cursor of the network
// in the same commit; only then may the adapter acknowledge it. The same message again,
// by whatever way it came, is the same event. Whether ombud was addressed is decided here,
// by one rule for all networks ([Addressed]). What is not addressed is an event and starts
// no turn.
//
// # What goes out
//
// An item of the outbox is rendered once into pieces, which are rows: a crash, an update
// of the renderer or a change of limits sends no part twice and leaves none out. One piece
// is on its way at a time, and its row says so before it is. What a crash or a broken
// connection leaves in doubt is asked of the network where it can tell; where it cannot,
// the item is shown as uncertain and is never sent again by itself.
//
// # Trouble
//
// An adapter that fails is started again for ever, at most a minute apart, and every five
// minutes if its network refuses its key. The operator is told once, when it begins to fail and
// when it works again. A send that fails says nothing yet: the network is asked who ombud is,
// and asked again until it says so; only sends that fail in a row are trouble by themselves.
// A channel that is connected anew waits for the end of the old connection. Nothing of an adapter ends the daemon, a panic neither.
package channel
