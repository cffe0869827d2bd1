package fault

import "unicode/utf8"

// Cut is the text up to max bytes, without half a character at its end.
func Cut(text string, max int) string {
	if len(text) <= max {
		return text
	}
	for max > 0 && !utf8.RuneStart(text[max]) {
		max--
	}
	return text[:max]
}
