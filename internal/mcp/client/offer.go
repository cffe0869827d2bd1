package client

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
)

// Bounds of what a server offers.
const (
	maxTools       = 256       // of one server
	maxPages       = 64        // of a list
	maxItem        = 256 << 10 // bytes of one tool
	maxOffer       = 8 << 20   // bytes of all
	maxDescription = 4 << 10   // bytes a model is shown
	maxToolName    = 256       // bytes of the server's own name of a tool
)

// The kinds of what a server offers.
const (
	kindTool      = "tool"
	kindResources = "resources" // read by tools of ombud's own
	kindPrompts   = "prompts"
)

// Item is one thing a server offers, as it is accepted and held against later.
type Item struct {
	Kind        string          `json:"kind"`
	Name        string          `json:"name"`
	Title       string          `json:"title,omitempty"`
	Description string          `json:"description,omitempty"`
	Input       json.RawMessage `json:"input,omitempty"`
	Output      json.RawMessage `json:"output,omitempty"`
	Annotations json.RawMessage `json:"annotations,omitempty"`
	Refused     string          `json:"refused,omitempty"` // why it is not kept as it is; Digest stands for the rest
	Digest      string          `json:"digest,omitempty"`
}

// key tells items of one server apart.
func (i Item) key() string { return i.Kind + " " + i.Name }

// hash is over all of an item: another is another item, whatever differs.
func (i Item) hash() string {
	raw, err := json.Marshal(i)
	if err != nil {
		panic("client: checked JSON does not marshal: " + err.Error())
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// Offering is all a server offers at a time.
type Offering struct {
	Items    []Item `json:"items"`
	Says     string `json:"says,omitempty"`     // what it calls itself
	Protocol string `json:"protocol,omitempty"` // the version that is spoken
	Cut      bool   `json:"cut,omitempty"`      // it offers more than is taken
	Told     string `json:"told,omitempty"`     // digest of the change the operator was told of last
}

func (o Offering) encode() []byte {
	raw, err := json.Marshal(o)
	if err != nil {
		panic("client: checked JSON does not marshal: " + err.Error())
	}
	return raw
}

// digest is over the items: what the operator has seen when they accept them.
func digest(items []Item) string {
	h := sha256.New()
	for _, i := range items {
		h.Write([]byte(i.hash()))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// item is a tool as it is kept.
func item(t *mcp.Tool) Item {
	out := Item{Kind: kindTool, Name: t.Name, Title: t.Title, Description: t.Description, Input: raw(t.InputSchema), Output: raw(t.OutputSchema)}
	if t.Annotations != nil {
		out.Annotations = raw(t.Annotations)
	}
	if why, is := t.Meta[unreadable].(string); is {
		return Item{Kind: kindTool, Name: guard.OneLine(t.Name, maxExcerpt), Refused: "it cannot be read: " + guard.OneLine(why, 300)}
	}
	size := len(out.Name) + len(out.Title) + len(out.Description) + len(out.Input) + len(out.Output) + len(out.Annotations)
	if size <= maxItem && len(out.Name) <= maxToolName {
		return out
	}
	why := "it has " + itoa(size) + " bytes, at most " + itoa(maxItem)
	if len(out.Name) > maxToolName {
		why = "its name has " + itoa(len(out.Name)) + " bytes, at most " + itoa(maxToolName)
	}
	return Item{Kind: kindTool, Name: guard.OneLine(t.Name, maxExcerpt), Refused: why, Digest: out.hash()}
}

func raw(v any) json.RawMessage {
	if v == nil {
		return nil
	}
	b, err := json.Marshal(v)
	if err != nil {
		return json.RawMessage("null")
	}
	return b
}

// gather makes an offering of what a server lists. The order of its list means nothing.
func gather(tools []*mcp.Tool, init *mcp.InitializeResult, cut bool) (Offering, error) {
	o := Offering{Items: []Item{}, Cut: cut}
	size := 0
	for _, t := range tools {
		if len(o.Items) == maxTools {
			o.Cut = true
			break
		}
		i := item(t)
		size += len(i.Description) + len(i.Input) + len(i.Output) + len(i.Annotations)
		o.Items = append(o.Items, i)
	}
	if size > maxOffer {
		return o, fault.New(fault.Unavailable, "what it offers has %d bytes, at most %d", size, maxOffer)
	}
	if init != nil {
		if init.ServerInfo != nil {
			o.Says = guard.OneLine(init.ServerInfo.Name+" "+init.ServerInfo.Version, 100)
		}
		o.Protocol = guard.OneLine(init.ProtocolVersion, 20)
		if c := init.Capabilities; c != nil && c.Resources != nil {
			o.Items = append(o.Items, Item{Kind: kindResources, Name: kindResources, Description: "its resources can be listed and read"})
		}
		if c := init.Capabilities; c != nil && c.Prompts != nil {
			o.Items = append(o.Items, Item{Kind: kindPrompts, Name: kindPrompts, Description: "its prompts can be listed and fetched"})
		}
	}
	slices.SortStableFunc(o.Items, func(a, b Item) int { return strings.Compare(a.key(), b.key()) })
	return o, nil
}

// change is how what is offered differs from what was accepted.
type change struct {
	New     []string `json:"new,omitempty"`
	Changed []string `json:"changed,omitempty"`
	Gone    []string `json:"gone,omitempty"`
}

func (c change) empty() bool { return len(c.New)+len(c.Changed)+len(c.Gone) == 0 }

func (c change) String() string {
	var parts []string
	for _, p := range []struct {
		what string
		list []string
	}{{"new", c.New}, {"changed", c.Changed}, {"gone", c.Gone}} {
		if len(p.list) == 0 {
			continue
		}
		const most = 12
		list := p.list[:min(most, len(p.list))]
		text := p.what + ": " + strings.Join(list, ", ")
		if more := len(p.list) - len(list); more > 0 {
			text += " and " + itoa(more) + " more"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}

// compare says how offered differs from pinned.
func compare(pinned, offered []Item) change {
	var c change
	was, is := index(pinned), index(offered)
	for _, i := range offered {
		switch old, there := was[i.key()]; {
		case !there:
			c.New = append(c.New, guard.OneLine(i.Name, maxExcerpt))
		case old.hash() != is[i.key()].hash():
			c.Changed = append(c.Changed, guard.OneLine(i.Name, maxExcerpt))
		}
	}
	for _, i := range pinned {
		if _, there := is[i.key()]; !there {
			c.Gone = append(c.Gone, guard.OneLine(i.Name, maxExcerpt))
		}
	}
	return c
}

// index is the items by their key: the first of two with the same name counts.
func index(items []Item) map[string]Item {
	out := map[string]Item{}
	for _, i := range items {
		if _, twice := out[i.key()]; !twice {
			out[i.key()] = i
		}
	}
	return out
}
