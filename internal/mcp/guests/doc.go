// Package guests says which coding agents may speak the Model Context Protocol to ombud
// by themselves, and makes their calls.
//
// # A client
//
// The operator makes a client; it proves itself by a token of 256 random bits, of which
// only a keyed digest is kept. A token that is unknown, wrong or removed gets one and the
// same answer. Lend makes a passing token for a program that the operator starts for a
// client: it is good while this process runs and the client is there, and gives nothing
// that the client does not have.
//
// # What a client may do
//
// It acts as mcp:NAME with what the operator granted that subject and nothing else: a
// client that was just made can do nothing. Its tier is SemiTrusted, however it connects
// and whatever it says. Nobody knows what else its model reads, so every call is labelled
// as written by others: what cannot be taken back asks, and so does what tells anybody
// but the operator something. Long results are kept for the client alone.
//
// # A call
//
// Each call is a run of kind mcpcall, made through act like every other. The same key
// again is the same call. A call that needs a person waits as long as the question is
// open; who asks for it before is told that it waits. The same call under another key,
// once it was told that it waits, is the question of what became of it, until that was
// answered: a person is not asked twice and nothing is done twice.
//
// # What survives a crash
//
// Clients, keys and calls: a call that was begun comes to its end. Lent tokens do not.
package guests
