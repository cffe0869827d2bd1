package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/ombud-run/ombud/internal/fault"
)

// Version is the value of "jsonrpc" in every message.
const Version = "2.0"

// Codes of JSON-RPC itself; every other code is a row of package fault.
const (
	CodeParse          = -32700 // the frame is not JSON
	CodeInvalidRequest = -32600 // the JSON is not a request
	CodeUnknownMethod  = -32601 // no such method
)

// maxID bounds the id a client may choose, in bytes of JSON.
const maxID = 256

// Request is a call, or without an ID a notification. ID is the JSON the other
// side chose, a string or an integer, echoed as it came.
type Request struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params,omitempty"`
}

// Response answers one request: a Result or an Error, never both. ID is null
// when the request could not be read.
type Response struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *Error          `json:"error,omitempty"`
}

// noteParams are the params of a note: which request it belongs to, and it.
type noteParams struct {
	Request json.RawMessage `json:"request"`
	Note    json.RawMessage `json:"note"`
}

// Error is the error of a response. Code follows from the class; a client that
// knows only JSON-RPC acts on it, ours reads Data.
type Error struct {
	Code    int        `json:"code"`
	Message string     `json:"message"`
	Data    *ErrorData `json:"data,omitempty"`
}

// ErrorData is what JSON-RPC has no place for.
type ErrorData struct {
	Class fault.Class `json:"class"`          // what kind of failure it is
	Hint  string      `json:"hint,omitempty"` // the way out, for a person
}

func (e *Error) Error() string { return e.Message }

// ErrorOf returns err in the form it crosses the wire in.
func ErrorOf(err error) *Error {
	if e, ok := err.(*Error); ok { //nolint:errorlint // what was wrapped around one is told too
		return e
	}
	class := fault.ClassOf(err)
	return &Error{
		Code:    fault.CodeOf(class).IPC,
		Message: err.Error(),
		Data:    &ErrorData{Class: class, Hint: fault.HintOf(err)},
	}
}

// Fault returns e as the classified error it was before it crossed the wire. A
// class this side does not know falls back to what the code says.
func (e *Error) Fault() *fault.Error {
	out := &fault.Error{Class: classOfCode(e.Code), Msg: e.Message}
	if e.Data != nil {
		out.Hint = e.Data.Hint
		if fault.CodeOf(e.Data.Class).Class == e.Data.Class {
			out.Class = e.Data.Class
		}
	}
	return out
}

func classOfCode(code int) fault.Class {
	switch code {
	case CodeParse:
		return fault.Invalid
	case CodeUnknownMethod:
		return fault.NotFound
	}
	return fault.ByIPC(code)
}

// protocolError is an error of the envelope, which has a code of JSON-RPC.
func protocolError(code int, class fault.Class, hint, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...), Data: &ErrorData{Class: class, Hint: hint}}
}

// TooLongError is the answer to a frame over MaxFrame.
func TooLongError(e *TooLong) *Error {
	hint := "nothing of it was taken; send less in one message"
	if !e.Skippable() {
		hint = "this is not a frame: a 4-byte big-endian length comes first, then that many bytes of JSON; the connection is closed"
	}
	return protocolError(CodeInvalidRequest, fault.Invalid, hint, "%v", e)
}

// UnknownMethodError is the answer to a method that nobody handles.
func UnknownMethodError(name string, known []string) *Error {
	return protocolError(CodeUnknownMethod, fault.NotFound, didYouMean(name, known), "unknown method %s", quoteShort(name))
}

// ParseRequest reads a frame's body as a request. After an error the request's
// ID is still set if it could be read, so that the answer finds its caller, and
// null otherwise. JSON escapes that stand for half a character (a lone surrogate)
// are refused: decoding would silently turn them into something else.
func ParseRequest(body []byte) (Request, *Error) {
	bad := Request{ID: json.RawMessage("null")}
	if !utf8.Valid(body) {
		return bad, protocolError(CodeParse, fault.Invalid, "", "frame is not valid UTF-8 at byte %d", invalidUTF8(body))
	}
	if err := syntax(body); err != nil {
		return bad, protocolError(CodeParse, fault.Invalid, "", "frame is not JSON: %v", err)
	}
	if trimmed := bytes.TrimLeft(body, " \t\r\n"); trimmed[0] != '{' {
		hint := ""
		if trimmed[0] == '[' {
			hint = "batches are not supported; send one request in each frame"
		}
		return bad, protocolError(CodeInvalidRequest, fault.Invalid, hint, "a request is a JSON object")
	}
	var req Request
	err := DecodeStrict(body, &req)
	if err != nil {
		// What the strict reading refused may still have an id to answer to.
		var envelope struct {
			ID json.RawMessage `json:"id"`
		}
		if json.Unmarshal(body, &envelope) != nil {
			envelope.ID = nil
		}
		req = Request{ID: envelope.ID}
	}
	idErr := checkID(req.ID)
	if idErr == nil && req.ID != nil {
		bad.ID = req.ID
	}
	if err != nil {
		return bad, protocolError(CodeInvalidRequest, fault.Invalid, fault.HintOf(err), "%v", err)
	}
	if req.JSONRPC != Version {
		return bad, protocolError(CodeInvalidRequest, fault.Invalid, "", "jsonrpc must be %q, not %s", Version, quoteShort(req.JSONRPC))
	}
	if idErr != nil {
		return bad, protocolError(CodeInvalidRequest, fault.Invalid, "", "%v", idErr)
	}
	return req, nil
}

// checkID accepts a string or an integer of bounded length, or none.
func checkID(id json.RawMessage) error {
	switch {
	case len(id) == 0:
		return nil
	case len(id) > maxID:
		return fmt.Errorf("id is longer than %d bytes", maxID)
	case id[0] == '"':
		if at := loneSurrogate(id); at >= 0 {
			return fmt.Errorf("id has half a character at byte %d", at)
		}
		return nil
	}
	if _, err := strconv.ParseInt(string(id), 10, 64); err != nil {
		return fmt.Errorf("id must be a string or an integer")
	}
	return nil
}

// ResultFrame returns the frame that answers request id with result.
func ResultFrame(id json.RawMessage, result any) ([]byte, error) {
	return EncodeFrame(struct {
		JSONRPC string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Result  any             `json:"result"`
	}{Version, id, withLists(result)})
}

// ErrorFrame returns the frame that answers request id with an error. Messages
// are cut so that it always fits.
func ErrorFrame(id json.RawMessage, e *Error) []byte {
	cut := *e
	cut.Message = shorten(cut.Message, maxErrorText)
	if e.Data != nil {
		data := *e.Data
		data.Hint = shorten(data.Hint, maxErrorText)
		cut.Data = &data
	}
	frame, err := EncodeFrame(Response{JSONRPC: Version, ID: id, Error: &cut})
	if err != nil {
		panic("wire: a bounded error has no JSON form: " + err.Error())
	}
	return frame
}

// NoteFrame returns the frame of a note that belongs to request id.
func NoteFrame(id json.RawMessage, n Note) ([]byte, error) {
	type params struct {
		Request json.RawMessage `json:"request"`
		Note    any             `json:"note"`
	}
	return EncodeFrame(struct {
		JSONRPC string `json:"jsonrpc"`
		Method  string `json:"method"`
		Params  params `json:"params"`
	}{Version, n.NoteName(), params{id, withLists(n)}})
}

// maxErrorText bounds the message and the hint of an error, in bytes.
const maxErrorText = 64 << 10

// shorten cuts s to at most limit bytes on a rune border and marks the cut.
func shorten(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	cut := limit
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}

// quoteShort quotes a name the other side chose, for a message of bounded length.
func quoteShort(s string) string { return strconv.Quote(shorten(s, 80)) }
