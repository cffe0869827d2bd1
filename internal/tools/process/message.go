package process

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/wire"
)

// Version is the version of the protocol ombud speaks. A process that names another
// first number is not used.
const Version = "0.1"

// The types of messages to a process.
const (
	typeHello    = "ToolHello"
	typeInvoke   = "InvokeTool"
	typeCancel   = "CancelInvocation"
	typeShutdown = "ToolShutdown"
)

// The types of messages of a process.
const (
	typeRegister = "ToolRegister"
	typeEvent    = "ToolEvent"
	typeResult   = "ToolResult"
	typeError    = "ToolError"
	typeEscalate = "RequiresEscalation"
	typeNotify   = "DispatchNotification"
)

// toTool is any message to a process; which fields it has depends on its type.
type toTool struct {
	Type            string          `json:"type"`
	ProtocolVersion string          `json:"protocol_version,omitempty"`
	CallID          string          `json:"call_id,omitempty"`
	ToolName        string          `json:"tool_name,omitempty"`
	Input           json.RawMessage `json:"input,omitempty"`
	TurnID          string          `json:"turn_id,omitempty"`
	Key             string          `json:"idempotency_key,omitempty"` // the same for every attempt of one call
}

// encode returns a message as a frame. It fails only if the input of a call makes it
// too long.
func (m toTool) encode() ([]byte, error) { return wire.EncodeFrame(m) }

// fromTool is any message of a process; which fields count depends on its type.
type fromTool struct {
	Type string `json:"type"`

	Process         string            `json:"tool_process_name"` // ToolRegister
	ProtocolVersion string            `json:"protocol_version"`  // ToolRegister; may be missing
	Tools           []json.RawMessage `json:"tools"`             // ToolRegister

	CallID   string          `json:"call_id"` // all below but DispatchNotification
	Event    progress        `json:"event"`   // ToolEvent
	Verified string          `json:"verified"`
	Output   json.RawMessage `json:"output"`
	Code     string          `json:"code"`
	Message  string          `json:"message"` // ToolError, DispatchNotification
	Reason   string          `json:"reason"`  // RequiresEscalation
	Target   string          `json:"target"`
	Subject  string          `json:"subject"`
}

// progress is what a process says of a call under way.
type progress struct {
	Kind    string `json:"kind"` // Status, OutputChunk, Log; others are passed over
	Status  string `json:"status"`
	Chunk   string `json:"chunk"`
	Level   string `json:"level"`
	Message string `json:"message"`
}

// verifiedYes and verifiedNA are what a process says of having checked an effect;
// anything else counts as Unverified.
const (
	verifiedYes = "Verified"
	verifiedNA  = "NotApplicable"
)

// errProtocol begins every error of a process that does not speak the protocol.
func errProtocol(format string, args ...any) *fault.Error {
	return fault.New(fault.Unavailable, "it broke the protocol: "+format, args...)
}

// decode reads the body of a frame. known is false for a type this version does not
// know, which is to be passed over. Text in it is valid UTF-8 without NUL.
func decode(body []byte) (m fromTool, known bool, err error) {
	clean, err := guard.CleanJSON(body)
	if err != nil {
		return m, false, errProtocol("a frame that is not JSON: %s", excerpt(body))
	}
	var head struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(clean, &head); err != nil || head.Type == "" {
		return m, false, errProtocol("a frame that is not an object with a type: %s", excerpt(body))
	}
	switch head.Type {
	case typeRegister, typeEvent, typeResult, typeError, typeEscalate, typeNotify:
	default:
		return fromTool{Type: head.Type}, false, nil
	}
	if err := json.Unmarshal(clean, &m); err != nil {
		return m, true, errProtocol("a %s that cannot be read: %w", head.Type, err)
	}
	if m.CallID == "" && m.Type != typeRegister && m.Type != typeNotify {
		return m, true, errProtocol("a %s without call_id", m.Type)
	}
	return m, true, nil
}

// readFrame reads the next frame, and says in the words of the protocol what is
// wrong. io.EOF is a clean end.
func readFrame(r io.Reader) ([]byte, error) {
	body, err := wire.ReadFrame(r)
	if long, ok := errors.AsType[*wire.TooLong](err); ok {
		if text := asText(long.Size); text != "" {
			return nil, errProtocol("plain text on its standard output, which begins with %q", text).
				WithHint("a tool process writes only frames there; its log goes to standard error")
		}
		return nil, errProtocol("%w", long)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, errors.New("its output ended within a frame")
	}
	return body, err
}

// asText is a length that is really four letters of text.
func asText(size int64) string {
	b := []byte{byte(size >> 24), byte(size >> 16), byte(size >> 8), byte(size)}
	for _, c := range b {
		if (c < ' ' || c > '~') && c != '\n' && c != '\t' {
			return ""
		}
	}
	return string(b)
}

const maxExcerpt = 80

// excerpt shows the start of what a process wrote.
func excerpt(b []byte) string {
	return guard.OneLine(fault.Cut(string(b), 4*maxExcerpt), maxExcerpt)
}

// compact is a JSON value as short as it gets.
func compact(raw json.RawMessage) json.RawMessage {
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return raw // not JSON; whoever reads it says so
	}
	return b.Bytes()
}
