package whatsapp

import "github.com/ombud-run/ombud/internal/channel/markup"

// render makes pieces of Markdown that fit both ways: bytes are never fewer than the
// characters that Meta counts.
func render(markdown string) []markup.Piece { return markup.WhatsApp(markdown, limit) }
