// Package client is the servers of the Model Context Protocol whose tools ombud calls: a
// program that is started and spoken to by its standard streams, or a server that is
// reached over HTTP. docs/mcp.md is what an operator reads of it.
//
// # What a server may do
//
// Adding one gives nobody anything. What a server offers is not offered on: the operator
// accepts what they have seen, tool by tool as name, description, schemas and annotations,
// and nothing else is a tool of ombud. A tool that is offered otherwise later is taken
// out until it is accepted as it is then, a new one waits, and one that is gone goes. The
// operator is told of each such change once. A call of mcp.SERVER.TOOL needs
// mcp.call:SERVER/TOOL of whoever makes it. What a server says of its tools (that one
// changes nothing, say) is a hint and counts for nothing; what the operator says counts.
// What it answers is data of untrusted:mcp:SERVER.
//
// A program is held by its walls (package confine), and its environment is made from
// nothing but a few fixed values and what the operator named. A server over HTTP is
// reached through package guard, at its own address only. Secrets are named, and filled
// in where they are sent.
//
// # What a server may ask
//
// While a call is under way its server may ask a person to fill something in or to open an
// address, unless the operator said no, and a model, if the operator said so. Who answers
// is not decided here: Deps.Ask does, and without it servers are told that they can ask
// nothing. A question belongs to one call. Where the server asks by its result, as the
// newest revision does, that is the call of the result; a request of an older revision
// belongs to the one call that is under way. If there are several it is refused, and from
// then on calls over this connection are made one at a time; if there is none it is
// refused. A call asks one thing at a time and eight at most. Neither its time nor that of
// its run goes on while it asks. A question ends with its call, its connection, its own
// time and the daemon. No roots are told.
//
// A tool that cannot be used as it is offered is refused with a reason and takes no other
// with it.
//
// # States
//
// A server is off, stopped, starting, ready, waiting to be started again, or held. There
// is at most one child of a server at any time: the next is started only when everything
// of the one before is gone. One that ends, floods, or does not get ready is ended, its
// standard input closed first, then asked, then killed, and started again after 1, 5, 25,
// 125 and then every 300 s; a minute in peace resets the count.
//
// Calls overlap up to a bound. A call whose server is gone before it answered has an
// unknown outcome if the server may have been told of it, unless the operator declared
// the tool repeatable. A call whose time is over is cancelled, which the server is told;
// what it says of it later is not heard.
//
// # What survives a crash
//
// A row per server: what the operator said of it, what they accepted, what it offered
// last, and its tokens, each sealed. After a start of ombud the accepted tools are known
// at once and a call waits for its server. Programs do not survive: their launcher ends
// them when ombud dies.
package client
