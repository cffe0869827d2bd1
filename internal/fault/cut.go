package fault

import "unicode/utf8"

// Cut is the text up to max bytes, without half a character at its end. What is no text is
// cut at max.
func Cut(text string, max int) string {
	if len(text) <= max {
		return text
	}
	for end := max; end >= 0 && end > max-utf8.UTFMax; end-- {
		if utf8.RuneStart(text[end]) {
			return text[:end]
		}
	}
	return text[:max]
}
