package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ombud-run/ombud/internal/fault"
)

func TestEveryClassSurvivesTheWire(t *testing.T) {
	t.Parallel()
	for _, row := range fault.Codes() {
		err := fmt.Errorf("call: %w", fault.New(row.Class, "what happened").WithHint("do this"))
		frame := ErrorFrame(json.RawMessage("7"), ErrorOf(err))
		var resp Response
		if err := json.Unmarshal(frame[4:], &resp); err != nil {
			t.Fatal(err)
		}
		got := resp.Error.Fault()
		if got.Class != row.Class || got.Hint != "do this" || got.Msg != "call: what happened" || resp.Error.Code != row.IPC {
			t.Errorf("%s came back as %+v, code %d", row.Class, got, resp.Error.Code)
		}
		resp.Error.Data = nil
		if got := resp.Error.Fault(); got.Class != row.Class {
			t.Errorf("code %d alone is %s, want %s", row.IPC, got.Class, row.Class)
		}
		resp.Error.Data = &ErrorData{Class: "of_tomorrow"}
		if got := resp.Error.Fault(); got.Class != row.Class {
			t.Errorf("code %d with an unknown class is %s, want %s", row.IPC, got.Class, row.Class)
		}
	}
	for code, want := range map[int]fault.Class{CodeParse: fault.Invalid, CodeUnknownMethod: fault.NotFound, 12345: fault.Internal} {
		if got := (&Error{Code: code}).Fault().Class; got != want {
			t.Errorf("code %d is %s, want %s", code, got, want)
		}
	}
}

func TestErrorFrameIsBounded(t *testing.T) {
	t.Parallel()
	frame := ErrorFrame(json.RawMessage("1"), ErrorOf(errors.New(strings.Repeat("ü", MaxFrame))))
	if len(frame) > 2*maxErrorText || !utf8.Valid(frame[4:]) {
		t.Errorf("%d bytes, valid UTF-8 %v", len(frame), utf8.Valid(frame[4:]))
	}
}

func TestParseRequestRefuses(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]struct {
		code int
		id   string
		text string
	}{
		``:                  {CodeParse, "null", "unexpected end"},
		`{"jsonrpc":"2.0",`: {CodeParse, "null", "unexpected end"},
		`{"jsonrpc":"2.0","id":1,"method":"x"} {}`: {CodeParse, "null", "after top-level value"},
		"{\"method\":\"\xff\"}":                    {CodeParse, "null", "UTF-8 at byte 11"},
		`[]`:                                       {CodeInvalidRequest, "null", "JSON object"},
		`17`:                                       {CodeInvalidRequest, "null", "JSON object"},
		`null`:                                     {CodeInvalidRequest, "null", "JSON object"},
		`{"id":4,"method":"x"}`:                    {CodeInvalidRequest, "4", "jsonrpc is missing"},
		`{"jsonrpc":"1.0","id":4,"method":"x"}`:    {CodeInvalidRequest, "4", `"2.0", not "1.0"`},
		`{"jsonrpc":"2.0","id":"a"}`:               {CodeInvalidRequest, `"a"`, "method is missing"},
		`{"jsonrpc":"2.0","id":4,"method":7}`:      {CodeInvalidRequest, "4", "want a string, got number"},
		`{"jsonrpc":"2.0","id":4,"method":"x","parms":{}}`:                      {CodeInvalidRequest, "4", `unknown field "parms"`},
		`{"jsonrpc":"2.0","id":4,"id":5,"method":"x"}`:                          {CodeInvalidRequest, "5", "given twice"},
		`{"jsonrpc":"2.0","id":null,"method":"x"}`:                              {CodeInvalidRequest, "null", "string or an integer"},
		`{"jsonrpc":"2.0","id":1.5,"method":"x"}`:                               {CodeInvalidRequest, "null", "string or an integer"},
		`{"jsonrpc":"2.0","id":{},"method":"x"}`:                                {CodeInvalidRequest, "null", "string or an integer"},
		`{"jsonrpc":"2.0","id":"` + strings.Repeat("i", 300) + `","method":""}`: {CodeInvalidRequest, "null", "longer than"},
		`{"jsonrpc":"2.0","id":9,"method":"x","params":{"text":"a\ud83d"}}`:     {CodeInvalidRequest, "9", `\ud83d`},
		`{"jsonrpc":"2.0","id":"\udc00","method":"x"}`:                          {CodeInvalidRequest, "null", `\udc00`},
	} {
		req, err := ParseRequest([]byte(in))
		switch {
		case err == nil:
			t.Errorf("%s: accepted", in)
		case err.Code != want.code || string(req.ID) != want.id || !strings.Contains(err.Message, want.text):
			t.Errorf("%s:\n got %d, id %s, %s\nwant %d, id %s, …%s…", in, err.Code, req.ID, err.Message, want.code, want.id, want.text)
		case err.Fault().Class != fault.Invalid:
			t.Errorf("%s: class %s", in, err.Fault().Class)
		}
	}
}

func TestParseRequestTakesCallsAndNotifications(t *testing.T) {
	t.Parallel()
	for in, id := range map[string]string{
		`{"jsonrpc":"2.0","id":-3,"method":"x"}`:                                          "-3",
		` {"method":"x","params":{"a":"\ud83d\ude00 \\ud800"},"id":"k","jsonrpc":"2.0"} `: `"k"`,
		`{"jsonrpc":"2.0","method":"x"}`:                                                  "",
	} {
		req, err := ParseRequest([]byte(in))
		if err != nil || string(req.ID) != id || req.Method != "x" {
			t.Errorf("%s: %+v, %v", in, req, err)
		}
	}
}

func FuzzParseRequest(f *testing.F) {
	for _, s := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"system.ping"}`,
		`{"jsonrpc":"2.0","id":"a","method":"message.send","params":{"text":"\ud83d\ude00"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"x","params":{"text":"\ud83d"}}`,
		`[1,2]`, `{"id":`, "\xff", `"\\\\\\u"`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		req, perr := ParseRequest(in)
		if perr != nil {
			// Whatever came in, the answer goes out.
			if frame := ErrorFrame(req.ID, perr); !json.Valid(frame[4:]) {
				t.Fatalf("answer is not JSON: %q", frame)
			}
			return
		}
		frame, err := EncodeFrame(req)
		if err != nil {
			t.Fatalf("accepted, but has no frame: %v", err)
		}
		again, perr := ParseRequest(frame[4:])
		if perr != nil || again.Method != req.Method || !bytes.Equal(again.ID, req.ID) {
			t.Fatalf("%q came back as %+v, %v", in, again, perr)
		}
	})
}
