package fakeapi

import (
	"net/http"
	"strings"
)

// modelList is Anthropic's and OpenAI's at once.
type modelList struct {
	Object string        `json:"object"`
	More   bool          `json:"has_more"`
	Data   []listedModel `json:"data"`
}

type listedModel struct {
	ID        string `json:"id"`
	Object    string `json:"object"`
	Type      string `json:"type"`
	Name      string `json:"display_name"`
	Created   int    `json:"created"`
	CreatedAt string `json:"created_at"`
	Owner     string `json:"owned_by"`
}

// aside answers what is asked for beside answers.
func (x *exchange) aside() bool {
	var doc any
	switch {
	case strings.HasSuffix(x.path, "/count_tokens"):
		doc = struct {
			Tokens int `json:"input_tokens"`
		}{100}
	case strings.HasSuffix(x.path, ":countTokens"):
		doc = struct {
			Tokens int `json:"totalTokens"`
		}{100}
	case strings.HasSuffix(x.path, "/models") && x.http.Method == http.MethodGet:
		doc = modelList{"list", false, []listedModel{{"fake-model", "model", "model", "Fake", 1700000000, "2025-01-01T00:00:00Z", "fake"}}}
	default:
		return false
	}
	x.done(http.StatusOK)
	x.json(http.StatusOK, doc)
	return true
}
