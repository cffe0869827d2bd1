// Package pairing knows which senders on remote channels are the operator, which
// are known to the operator, and which are strangers.
//
// # Who somebody is
//
// A sender is (channel, account, the provider's user id). A name is never looked
// at: anybody can take one. Whoever is in no row is a stranger, and with no row at
// all everybody is.
//
// # The operator
//
// An operator's identity is paired with a code: Start, which only the operator
// socket reaches, makes it, and the person sends it from the chat that is to be
// paired. The pairing is for that user id in that one direct chat. A code has 40
// random bits, of which only a keyed digest is kept; it is good once, for ten
// minutes, and until the next one is made. Five wrong guesses shut a sender out of
// a code, twenty by whomever close it. Every failure has the same answer.
//
// # What survives a crash
//
// All of it: codes and guesses are rows, and each change is one commit with its
// event and its audit entry.
package pairing
