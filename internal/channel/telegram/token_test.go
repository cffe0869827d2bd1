package telegram

import (
	"strings"
	"testing"
)

func TestOnlyATokenGetsIntoAnAddress(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"123456789:AAF_x-9": true, "1:a": true, strings.Repeat("9", 20) + ":" + strings.Repeat("a", 128): true,
		"": false, ":": false, "1:": false, ":a": false, "012:a": false, "12": false, "1:a:b": false, "1:a/b": false, "1:a b": false,
		"1:a?": false, "x:a": false, "1:ä": false, "-1:a": false, "1:a\n": false,
		strings.Repeat("9", 21) + ":a": false, "1:" + strings.Repeat("a", 129): false,
	} {
		if isToken(text) != want {
			t.Errorf("%q is a token: %v", text, !want)
		}
	}
}
