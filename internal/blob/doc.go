// Package blob keeps large content: tool results, attachments, long messages.
//
// Content is cut into sealed pieces of 256 KiB, each written by a transaction of
// its own, so that 64 MiB never sit in memory or in one transaction. A blob is
// there from its last transaction on, which gives it its digest: a keyed hash, so
// that the same content is kept once and its hash tells nobody without the key
// what it is.
//
// States: filling (no digest; nobody can open it) → complete → never changed.
//
// What a kill leaves behind is a filling blob that nobody knows the id of; Sweep
// removes it when it is a day old. A reader notices changed, missing and
// exchanged pieces: each is bound to its blob and number, and the whole is held
// against the digest at its end.
package blob
