//go:build unix

package child

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// unasked are the requests of the recordings that this package does not make.
var unasked = []string{
	`"subtype":"initialize"`, `"content":"queued while busy"`, `"content":"second"`, `"method":"account/read"`,
	`"method":"thread/list"`, `"method":"thread/read"`, `"method":"no/such"`, `"method":"turn/steer"`,
}

// ids are where the lines of the protocols have the id of a request.
type ids struct {
	ID       json.RawMessage `json:"id"`
	Method   string          `json:"method"`
	Request  json.RawMessage `json:"request"`
	ReqID    string          `json:"request_id"`
	Response struct {
		ID string `json:"request_id"`
	} `json:"response"`
}

// replay plays the program's side of a recorded dialogue: it prints what the program
// printed, and for each line the program was told it waits for one of ours, which it
// notes in a file. Ids of requests are ours. It ends as a program does, with the end
// of its input.
func replay(file, log string, in *bufio.Reader) int {
	raw, err := os.ReadFile(file)
	if err != nil {
		return 90
	}
	heard, err := os.Create(log)
	if err != nil {
		return 91
	}
	mine, skipped := map[string][]byte{}, map[string]bool{}
	for line := range bytes.Lines(raw) {
		_, said, _ := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
		if len(said) < 2 {
			continue
		}
		text := said[2:]
		var l ids
		_ = json.Unmarshal(text, &l)
		switch said[0] {
		case '!':
			return finish(in, string(text))
		case '>':
			if isUnasked(string(text)) || !json.Valid(text) {
				if id := key(&l); id != "" {
					skipped[id] = true
				}
				continue
			}
			got, err := in.ReadBytes('\n')
			if bytes.Contains(got, []byte("caught_up")) { // behind a session that is gone on with
				fmt.Println(`{"jsonrpc":"2.0","method":"session/update","params":{"update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"said before"}}}}`)
				fmt.Println(`{"jsonrpc":"2.0","id":4,"error":{"code":-32601,"message":"Method not found"}}`)
				got, err = in.ReadBytes('\n')
			}
			if err != nil {
				return finish(in, string(text))
			}
			_, _ = heard.Write(got)
			var g ids
			_ = json.Unmarshal(got, &g)
			mine[key(&l)] = []byte(key(&g))
		case '<':
			answer := key(&l)
			if l.Response.ID != "" {
				answer = fmt.Sprintf("%q", l.Response.ID)
			}
			isAnswer := l.Method == "" && l.Request == nil
			if isAnswer && skipped[answer] || isAnswer && answer == "" && bytes.Contains(text, []byte("unknown variant")) {
				continue
			}
			if to, is := mine[answer]; isAnswer && is {
				text = bytes.Replace(text, []byte(`"id":`+answer), append([]byte(`"id":`), to...), 1)
				text = bytes.Replace(text, []byte(`"request_id":`+answer), append([]byte(`"request_id":`), to...), 1)
			}
			fmt.Println(string(text))
			if bytes.Contains(text, []byte(`"type":"result"`)) {
				return finish(in, "code=0")
			}
		}
	}
	return 92
}

func key(l *ids) string {
	if l.ReqID != "" {
		return fmt.Sprintf("%q", l.ReqID)
	}
	return string(l.ID)
}

func isUnasked(text string) bool {
	for _, part := range unasked {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}

// finish waits for the end of the input, and ends with the code of the note.
func finish(in *bufio.Reader, note string) int {
	for {
		if _, err := in.ReadString('\n'); err != nil {
			break
		}
	}
	if strings.Contains(note, "code=1") {
		return 1
	}
	return 0
}
