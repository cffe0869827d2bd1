package client

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
)

const (
	registryName = 64 // most characters of the name of a tool
	hashed       = 8  // characters of the mark of a name that was changed
)

func itoa(n int) string { return strconv.Itoa(n) }

// toolName is mcp.SERVER.TOOL: the name by which ombud knows a tool of a server. A
// character a name cannot have becomes "_". A name that was changed or is too long ends
// with a mark made from the whole of it, so that two do not become one.
func toolName(server, name string) string {
	prefix := "mcp." + server + "."
	return prefix + localName(name, registryName-len(prefix))
}

func localName(name string, limit int) string {
	clean := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-':
			return r
		}
		return '_'
	}, name)
	if clean == name && len(name) <= limit && name != "" {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	mark := "_" + hex.EncodeToString(sum[:])[:hashed]
	return clean[:min(len(clean), limit-len(mark))] + mark
}
