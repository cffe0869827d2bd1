package child

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/harness"
)

// talker speaks the protocol of one run with a program. Its methods are not called
// at the same time, and must not wait.
type talker interface {
	begin()
	// line takes a line of the program. Only what it says true to is booked.
	line(raw []byte) (book bool)
	// interrupt asks the turn to end, and says whether there is one.
	interrupt() bool
	// amend adds what only the protocol told, once all is over.
	amend(r *harness.Record)
}

// dialogue is what every talker has.
type dialogue struct {
	task *Task
	out  *outbox
	asks *asks
	over func() // the run is over: the input ends
}

// rpc is a line of JSON-RPC, of either side.
type rpc struct {
	Version string          `json:"jsonrpc,omitempty"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  any             `json:"params,omitempty"`
	Result  any             `json:"result,omitempty"`
	Error   *rpcError       `json:"error,omitempty"`
}

type rpcError struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// heard is a line of JSON-RPC as it comes.
type heard struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *rpcError       `json:"error"`
}

const (
	noMethod = -32601
	maxID    = 256 // bytes of the id of a request, which we repeat
)

// hear reads a line. One that is none is the decoder's to count.
func hear(raw []byte) (heard, bool) {
	var l heard
	if len(raw) == 0 || raw[0] != '{' || json.Unmarshal(raw, &l) != nil {
		return l, false
	}
	return l, true
}

// isRequest says whether it wants an answer. An id that is too long gets none.
func (l *heard) isRequest() bool {
	return l.Method != "" && len(l.ID) > 0 && len(l.ID) <= maxID && !bytes.Equal(l.ID, []byte("null"))
}

// into reads part of a line; what does not fit stays empty.
func into(raw json.RawMessage, to any) { _ = json.Unmarshal(raw, to) }

// number is an id of ours.
func number(id byte) json.RawMessage { return json.RawMessage{'0' + id} }

func isNumber(raw json.RawMessage, id byte) bool { return len(raw) == 1 && raw[0] == '0'+id }

// harnessWord and harnessError bound what a program said.
func harnessWord(text string) string { return fault.Cut(strings.ToValidUTF8(text, "\uFFFD"), 128) }

func harnessError(text string) string { return fault.Cut(strings.ToValidUTF8(text, "\uFFFD"), 4<<10) }

func cutVariable(entry string) (n, value string) {
	n, value, _ = strings.Cut(entry, "=")
	return n, value
}
