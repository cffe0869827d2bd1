// Package audit keeps the record of who did what by whose leave, in a form that
// cannot be changed without it showing. An entry is written by the transaction
// that does what it records: no entry, no act.
//
// # Chains
//
// Each process that writes opens a chain of its own (a node's next epoch) and
// closes it when it stops. With ‖ for "followed by":
//
//	hash = SHA-256( hash of the entry before ‖ entry )
//	mac  = HMAC-SHA-256( audit key, mac of the entry before ‖ hash )
//
// entry is canonical JSON: the keys of one Go type in its order, no white space,
// no HTML escapes. The first entry follows the chain's opening. The openings of
// all nodes form a chain in the same way, which starts at 32 zero bytes. An
// opening is canonical JSON too; it names the node's chain before with the number
// of its entries and the hash of the last, and is signed with the instance's
// Ed25519 key. After every checkpoint_every entries, and when it is closed, a
// chain is signed at its present end. What is signed starts with the words
// "ombud.audit.<purpose>.v1" and a line break.
//
//	opened ──append──▶ open ──Stop──▶ closed (signed at its end)
//	                    │ └──kill───▶ ended as it is; the next opening names its end
//	                    └──a newer process of the node opens──▶ superseded: appends are refused
//
// # What shows
//
//   - To the holder of the audit key: any change, removal, addition or exchange
//     of entries, openings and checkpoints, but for the two below.
//   - To an auditor with the public key alone (VerifyFile): the same for all that
//     lies before a signature: up to the last checkpoint or the last opening.
//   - A cut end of the newest chain, after its last checkpoint, shows by the steps
//     that refer to its entries (VerifyRefs).
//   - A whole store put back to an older state, an end cut off with all that speaks
//     of it, and a record rewritten by who has the keys show only by something
//     outside of the store: its anchors.
//
// # Anchors
//
// An anchor is a line of JSON with a chain's opening or one of its checkpoints, as
// signed. Anchor appends those of a node to a file, flushed, within moments of
// their commit; what a kill left out, the next start adds. A file proves as much as
// it is out of reach: another disk or machine, append-only, a copy. A line that is
// not as it was written spoils the whole file (ReadAnchors), an end without its line
// break is as if not written. A node whose store lacks what its file names does not
// start.
//
// # What is in it
//
// Entries are stored readable, so that an export needs no secret. What a scope is
// about is hidden and kept as a keyed hash, and so is the input. Nothing is ever
// removed.
package audit
