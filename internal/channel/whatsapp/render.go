package whatsapp

import (
	"strings"

	"github.com/ombud-run/ombud/internal/channel/markup"
	"github.com/ombud-run/ombud/internal/fault"
)

// render makes pieces of Markdown that fit both ways: bytes are never fewer than the
// characters that Meta counts.
func render(markdown string) (out []markup.Piece) {
	for {
		head := fault.Cut(markdown, limit)
		out = append(out, markup.Piece{Text: head})
		if markdown = strings.TrimPrefix(markdown, head); markdown == "" {
			return out
		}
	}
}
