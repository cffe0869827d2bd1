package keyproxy

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
)

// dialect is how an API tells of an error. A program that is answered in its own knows
// what to make of it: whether to try again, or that its key is not good.
type dialect int

const (
	openAI dialect = iota
	anthropic
	google
)

// dialectOf tells which API a request is meant for. Each program sends something that
// only the clients of its API send.
func dialectOf(r *http.Request) dialect {
	switch {
	case r.Header.Get("Anthropic-Version") != "", r.Header.Get("X-Api-Key") != "":
		return anthropic
	case r.Header.Get("X-Goog-Api-Key") != "", r.URL.Query().Has("key"), strings.Contains(r.URL.Path, "/v1beta/"):
		return google
	}
	return openAI
}

// names are what a status is called.
var names = map[int][3]string{ // openAI, anthropic, google
	http.StatusBadRequest:            {"invalid_request_error", "invalid_request_error", "INVALID_ARGUMENT"},
	http.StatusUnauthorized:          {"invalid_api_key", "authentication_error", "UNAUTHENTICATED"},
	http.StatusForbidden:             {"permission_denied", "permission_error", "PERMISSION_DENIED"},
	http.StatusNotFound:              {"not_found", "not_found_error", "NOT_FOUND"},
	http.StatusRequestEntityTooLarge: {"request_too_large", "request_too_large", "INVALID_ARGUMENT"},
	http.StatusTooManyRequests:       {"rate_limit_exceeded", "rate_limit_error", "RESOURCE_EXHAUSTED"},
	http.StatusBadGateway:            {"server_error", "api_error", "UNAVAILABLE"},
}

type openAIError struct {
	Error struct {
		Message string `json:"message"`
		Type    string `json:"type"`
		Code    string `json:"code"`
	} `json:"error"`
}

type anthropicError struct {
	Type  string `json:"type"`
	Error struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	} `json:"error"`
}

type googleError struct {
	Error struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
		Status  string `json:"status"`
	} `json:"error"`
}

// document is what is said with a refusal.
func document(d dialect, no *refusal) []byte {
	called, is := names[no.status]
	if !is {
		called = names[http.StatusBadGateway]
	}
	message := "ombud: " + no.text
	var doc any
	switch d {
	case anthropic:
		var e anthropicError
		e.Type, e.Error.Type, e.Error.Message = "error", called[d], message
		doc = e
	case google:
		var e googleError
		e.Error.Code, e.Error.Message, e.Error.Status = no.status, message, called[d]
		doc = e
	default:
		var e openAIError
		e.Error.Message, e.Error.Type, e.Error.Code = message, "invalid_request_error", called[openAI]
		if no.status >= 500 {
			e.Error.Type = "server_error"
		}
		doc = e
	}
	raw, err := json.Marshal(doc)
	if err != nil {
		panic(err) // a type of ours that has no JSON: every test would see it
	}
	return raw
}

func (r *refusal) write(w http.ResponseWriter, q *http.Request) {
	raw := document(dialectOf(q), r)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(raw)))
	w.WriteHeader(r.status)
	_, _ = w.Write(raw) // the client may have left
}
