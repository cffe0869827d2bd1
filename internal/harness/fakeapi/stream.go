package fakeapi

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// failed is the document of an error.
type failed[E any] struct {
	Error E `json:"error"`
}

// event sends one event of a stream; without a name it has only data.
func (x *exchange) event(name string, doc any) {
	raw, err := json.Marshal(doc)
	if err != nil {
		panic(err) // documents are made here
	}
	x.send(name, string(raw))
}

func (x *exchange) send(name, data string) {
	if name != "" {
		name = "event: " + name + "\n"
	}
	if _, err := io.WriteString(x.w, name+"data: "+data+"\n\n"); err != nil {
		panic(http.ErrAbortHandler) // the client has left
	}
	if err := http.NewResponseController(x.w).Flush(); err != nil {
		panic(http.ErrAbortHandler)
	}
}

// say sends a text in pieces, and meets the faults of a stream in it. say is what
// sends a piece, wrong what sends an error. It reports whether the stream goes on.
func (x *exchange) say(text string, say func(piece string), wrong func()) bool {
	if x.fault == Slow {
		x.slow(x.run.scenario, say)
	}
	for i, p := range pieces(text) {
		say(p)
		if i > 0 {
			continue
		}
		switch x.fault {
		case Cut:
			panic(http.ErrAbortHandler)
		case Stall:
			x.hold()
			return false
		case InBand:
			wrong()
			return false
		}
	}
	return true
}

func (x *exchange) slow(sc Scenario, say func(string)) {
	words, pace := sc.Words, sc.Pace
	if words == 0 {
		words = 5
	}
	if pace == 0 {
		pace = time.Second
	}
	beat := time.NewTicker(pace)
	defer beat.Stop()
	for i := range words {
		say(fmt.Sprintf("word %d ", i))
		select {
		case <-beat.C:
		case <-x.http.Context().Done():
			panic(http.ErrAbortHandler)
		case <-x.run.server.closing:
			panic(http.ErrAbortHandler)
		}
	}
}

// pieces cuts a text the way models send it, now and then inside a word.
func pieces(text string) []string {
	const least = 6 // bytes
	var out []string
	var b strings.Builder
	for _, r := range text {
		b.WriteRune(r)
		if b.Len() >= least {
			out = append(out, b.String())
			b.Reset()
		}
	}
	if b.Len() > 0 || len(out) == 0 {
		out = append(out, b.String())
	}
	return out
}

// texts reads a content that is a text or a list of blocks, and returns the texts of
// the blocks of these types.
func texts(raw json.RawMessage, types ...string) []string {
	var one string
	if json.Unmarshal(raw, &one) == nil {
		return []string{one}
	}
	var blocks []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if json.Unmarshal(raw, &blocks) != nil {
		return nil
	}
	var out []string
	for _, b := range blocks {
		for _, t := range types {
			if b.Type == t {
				out = append(out, b.Text)
			}
		}
	}
	return out
}

func bearer(q *http.Request) string {
	token, _ := strings.CutPrefix(q.Header.Get("authorization"), "Bearer ")
	return token
}
