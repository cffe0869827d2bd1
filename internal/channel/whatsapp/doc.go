// Package whatsapp has the two ways to WhatsApp: an account of a person's, through the
// program wacli that runs beside us, and a business number, through Meta's Cloud API.
//
// # wacli
//
// wacli posts what it hears to a hook of ours, signed, and sends what it is told to by a
// command. Its hook tries five times within a quarter of a minute, so what it said while
// nobody listened is asked for afterwards from its own list, from the cursor that was
// committed with the last message. What was said in a chat that wacli's owner locked is
// never taken, by neither way.
//
// A command that failed proves little: wacli talks to its own daemon, which may have sent
// the message before the answer was lost. So wacli is asked first whether it could send,
// which makes the common troubles sure; what is left in doubt is looked up in its list.
// That list says surely what was sent. What it does not have surely was not sent only if
// the command ended by itself: wacli forgets a message whose sending was cut off.
//
// # Cloud API
//
// Meta posts messages and what became of ours, signed, and comes again for days until it
// is told that they arrived. A piece is sent with its key, which the reports about it
// carry: so what was in doubt settles itself when a report comes.
package whatsapp
