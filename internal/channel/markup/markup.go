// Package markup turns Markdown into what chat networks show, in pieces that fit their
// limits.
//
// Markdown is read once into lines of styled runs. A pen writes such lines as one network
// shows them, and one splitter, which knows no network, asks the pen what lines cost and
// cuts where it shows least: between blocks, then between lines, then words, then
// characters as people see them. A piece is whole by itself: code, bold, a quote or a link
// that is cut ends in one piece and begins again in the next.
//
// The text comes from a model and may hold anything. What is no Markdown arrives as it was
// written, also if it looks like a network's own marks; raw HTML is text; nothing in it
// names a whole channel or a person to a network that would call them. Control characters,
// characters that turn the direction of writing and invisible ones are taken out.
//
// A message has at most 20 pieces, and 256 KiB of Markdown are read: what is beyond is told
// in a last line. A paragraph of more than 16 KiB, nesting deeper than people write and
// tables with very many cells are shown as they were written, so that the work is bounded.
//
// The same Markdown always gives the same pieces, so that an edit shows what a send does.
package markup

// Piece is a part of a message as a network takes it.
type Piece struct {
	Text     string   `json:"text"`               // as the network takes it
	Entities []Entity `json:"entities,omitempty"` // the formatting of Text, for networks that want it beside
	Plain    string   `json:"plain,omitempty"`    // to send if the network cannot parse Text; "" if that is Text itself
}

// Entity is the formatting of a part of a text. Offset and Length are in UTF-16 units.
type Entity struct {
	Type     string `json:"type"` // as Telegram names them
	Offset   int    `json:"offset"`
	Length   int    `json:"length"`
	URL      string `json:"url,omitempty"`
	Language string `json:"language,omitempty"`
}
