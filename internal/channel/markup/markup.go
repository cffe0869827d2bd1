// Package markup turns Markdown into what chat networks show, in pieces that fit their
// limits.
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
