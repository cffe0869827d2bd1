//go:build unix

package process

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ombud-run/ombud/internal/fault"
)

// FuzzDecode: a message is read or refused in a sentence; what is read is text that
// every store takes; reading what it means again gives the same.
func FuzzDecode(f *testing.F) {
	for _, s := range seeds(f) {
		f.Add([]byte(s))
	}
	f.Add([]byte(`{"type":"ToolResult","call_id":"a\u0000\ud800","output":"\udfff"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		m, known, err := decode(body)
		if err != nil {
			if !fault.Is(err, fault.Unavailable) || !utf8.ValidString(err.Error()) || strings.ContainsRune(err.Error(), 0) {
				t.Fatalf("%q: %v", body, err)
			}
			return
		}
		if !known {
			return
		}
		for _, text := range []string{m.Type, m.CallID, m.Code, m.Message, m.Reason, m.Event.Status, m.Event.Chunk, m.Process, m.Subject, m.Target} {
			if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
				t.Fatalf("%q gives %q", body, text)
			}
		}
		if len(m.Output) > 0 && !json.Valid(m.Output) {
			t.Fatalf("%q gives output %q", body, m.Output)
		}
	})
}

// FuzzRegister: whatever is registered, each tool is usable within the scopes of the
// operator or refused with a reason, and the same tools are kept as the same bytes.
func FuzzRegister(f *testing.F) {
	for _, s := range seeds(f) {
		f.Add([]byte(s))
	}
	sp := Spec{Name: "act", Command: []string{"/bin/true"}}
	for _, text := range []string{"net.fetch:https://a.example", "tool:act.*", "fs.read:/data/**"} {
		b, err := ParseBound(text)
		if err != nil {
			f.Fatal(err)
		}
		sp.Scopes = append(sp.Scopes, b)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		m, _, err := decode(body)
		if err != nil || m.Type != typeRegister {
			return
		}
		reg, err := registered(m)
		if err != nil {
			return
		}
		var again registration
		if err := json.Unmarshal(reg.encode(), &again); err != nil || !bytes.Equal(again.encode(), reg.encode()) {
			t.Fatalf("%q is kept as %q: %v", body, reg.encode(), err)
		}
		for i, tl := range sp.judge(reg) {
			if (tl.Refused == "") == (len(tl.Needs) == 0) || !strings.HasPrefix(tl.Name, "act.") {
				t.Fatalf("%q: %+v", body, tl)
			}
			if tl.Refused != "" {
				continue
			}
			for _, need := range tl.Needs {
				b, err := ParseBound(need)
				if err != nil || !sp.allows(tl.local, b.Scope) && need != "tool:"+tl.Name {
					t.Fatalf("%q needs %s: %v", body, need, err)
				}
			}
			if _, err := sp.definition(reg.Tools[i], tl, func() bool { return true }); err != nil {
				t.Fatalf("%q: %v", body, err)
			}
		}
	})
}

// FuzzFrames: any bytes are frames, and then an end or a reason.
func FuzzFrames(f *testing.F) {
	for _, s := range seeds(f) {
		f.Add(append(binary.BigEndian.AppendUint32(nil, uint32(len(s))), s...))
	}
	f.Add([]byte("plain text"))
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 1})
	f.Fuzz(func(t *testing.T, stream []byte) {
		r := bytes.NewReader(stream)
		for range len(stream) + 1 {
			body, err := readFrame(r)
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				if !utf8.ValidString(err.Error()) {
					t.Fatalf("%q: %q", stream, err)
				}
				return
			}
			_, _, _ = decode(body)
		}
		t.Fatalf("%q never ends", stream)
	})
}

// FuzzBound: a bound that is read is read from its text again.
func FuzzBound(f *testing.F) {
	for _, s := range []string{"tool:act", "get=net.fetch:https://a.example/?x=y", "fs.read:/a=b", "a.b-c=spend:3", "=x", "x="} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		b, err := ParseBound(text)
		if err != nil {
			return
		}
		if again, err := ParseBound(b.String()); err != nil || again.String() != b.String() {
			t.Fatalf("%q is %q and then %q, %v", text, b, again, err)
		}
	})
}
