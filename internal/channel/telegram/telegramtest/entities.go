package telegramtest

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf16"
)

// entityTypes are those that a bot may send.
var entityTypes = []string{
	"mention", "hashtag", "cashtag", "bot_command", "url", "email", "phone_number", "bold", "italic", "underline",
	"strikethrough", "spoiler", "blockquote", "expandable_blockquote", "code", "pre", "text_link", "text_mention", "custom_emoji",
}

// checkEntities says what is wrong with the entities of a text, "" if nothing.
func checkEntities(text string, entities []Entity) string {
	units := utf16.Encode([]rune(text))
	split := func(at int) bool { // whether a symbol is torn apart there
		return at > 0 && at < len(units) && units[at-1] >= 0xd800 && units[at-1] < 0xdc00
	}
	for _, e := range entities {
		end := e.Offset + e.Length
		switch {
		case !slices.Contains(entityTypes, e.Type):
			return "can't parse MessageEntity: Unsupported type specified"
		case e.Offset < 0 || e.Length < 0 || end < 0:
			return "can't parse MessageEntity: Wrong offset or length specified"
		case end > len(units):
			return fmt.Sprintf("entity beginning at UTF-16 offset %d ends after the end of the text at UTF-16 offset %d", e.Offset, end)
		case split(e.Offset):
			return fmt.Sprintf("entity begins in a middle of a UTF-16 symbol at byte offset %d", e.Offset)
		case split(end):
			return fmt.Sprintf("entity ends in a middle of a UTF-16 symbol at byte offset %d", end)
		case e.Type == "text_link" && e.URL == "":
			return "can't parse MessageEntity: Can't find field \"url\""
		}
	}
	return ""
}

// parseMode takes the marks out of a marked text, or says what is wrong with it. It knows
// the mistakes, and not the formatting: nobody looks at that here.
func parseMode(mode, text string) (plain, wrong string) {
	switch strings.ToLower(mode) {
	case "html":
		return parseHTML(text)
	case "markdown", "markdownv2":
		return parseMarkdown(text, strings.EqualFold(mode, "markdownv2"))
	}
	return "", "unsupported parse_mode"
}

func parseHTML(text string) (plain, wrong string) {
	var open []string
	for {
		before, rest, found := strings.Cut(text, "<")
		plain += before
		if !found {
			break
		}
		tag, after, closed := strings.Cut(rest, ">")
		name, isEnd := strings.CutPrefix(tag, "/")
		name, _, _ = strings.Cut(name, " ")
		switch {
		case !closed:
			return "", "can't parse entities: Unclosed start tag"
		case isEnd && (len(open) == 0 || open[len(open)-1] != name):
			return "", "can't parse entities: Unexpected end tag"
		case isEnd:
			open = open[:len(open)-1]
		case !slices.Contains([]string{"b", "strong", "i", "em", "u", "s", "a", "code", "pre", "blockquote", "tg-spoiler"}, name):
			return "", fmt.Sprintf("can't parse entities: Unsupported start tag %q", name)
		default:
			open = append(open, name)
		}
		text = after
	}
	if len(open) > 0 {
		return "", fmt.Sprintf("can't parse entities: Can't find end tag corresponding to start tag %q", open[len(open)-1])
	}
	return plain, ""
}

func parseMarkdown(text string, strict bool) (plain, wrong string) {
	open := map[rune]int{}
	escaped := false
	for at, r := range text {
		switch {
		case escaped || !strings.ContainsRune("\\_*`[]()~>#+-=|{}.!", r):
			plain += string(r)
			escaped = false
			continue
		case r == '\\':
			escaped = true
		case strings.ContainsRune("_*`", r):
			if open[r]++; open[r] == 2 {
				delete(open, r)
			}
		case strict && strings.ContainsRune(">#+-=|{}.!", r):
			return "", fmt.Sprintf("can't parse entities: Character '%c' is reserved and must be escaped with the preceding '\\'", r)
		default:
			plain += text[at : at+1]
		}
	}
	if len(open) > 0 {
		return "", "can't parse entities: Can't find end of the entity starting at byte offset 0"
	}
	return plain, ""
}
