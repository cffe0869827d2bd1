// An external adapter for ombud: lines of standard input and output are the chat network,
// so that any program can be one which knows who wrote a line. docs/channels/external.md is
// the protocol.
//
//	adapter-go SOCKET CREDENTIAL-FILE
//
// A line "CHAT USER TEXT" that is read is a message, a line "CHAT TEXT" that is written is
// an answer, both with \n for a new line within TEXT. A CHAT that begins with # is a group;
// there ombud is named by a TEXT that begins with "@ombud ".
package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"strings"
	"time"
)

type fields map[string]any

type answer struct {
	Result struct {
		Messages []struct {
			Key   string `json:"key"`
			Chat  string `json:"chat"`
			Text  string `json:"text"`
			Again bool   `json:"again"`
		} `json:"messages"`
	} `json:"result"`
	Error *struct {
		Message string `json:"message"`
		Data    struct {
			Class string `json:"class"`
		} `json:"data"`
	} `json:"error"`
}

// call makes one call over a connection of its own.
func call(method string, p fields) (a answer, err error) {
	credential, err := os.ReadFile(os.Args[2]) //nolint:gosec // whoever starts it names it
	if err != nil {
		return a, err
	}
	p["credential"] = strings.TrimSpace(string(credential))
	body, err := json.Marshal(fields{"jsonrpc": "2.0", "id": 1, "method": method, "params": p})
	if err != nil {
		return a, err
	}
	conn, err := net.Dial("unix", os.Args[1]) //nolint:gosec // the same
	if err != nil {
		return a, err
	}
	defer conn.Close()
	var size uint32
	if err = conn.SetDeadline(time.Now().Add(90 * time.Second)); err != nil {
		return a, err
	}
	if _, err = conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)); err == nil {
		err = binary.Read(conn, binary.BigEndian, &size)
	}
	if err == nil {
		err = json.NewDecoder(io.LimitReader(conn, int64(size))).Decode(&a)
	}
	return a, err
}

// deliver hands a line over, until ombud has it for good or never takes it. The key stays
// the same, so that it is taken once.
func deliver(line string) {
	words := append(strings.SplitN(line, " ", 3), "", "")
	text := strings.ReplaceAll(words[2], `\n`, "\n")
	for key := fmt.Sprint(time.Now().UnixNano()); ; <-time.After(time.Second) {
		a, err := call("adapter.deliver", fields{
			"chat": words[0], "group": strings.HasPrefix(words[0], "#"), "sender": words[1], "text": text, "key": key,
			"mentions_me": strings.HasPrefix(text, "@ombud "),
		})
		switch {
		case err == nil && a.Error == nil:
			return
		case err == nil && (a.Error.Data.Class == "invalid" || a.Error.Data.Class == "denied"):
			log.Print("not taken: ", a.Error.Message)
			return
		}
	}
}

func say() {
	for sent := map[string]bool{}; ; {
		a, err := call("adapter.next", fields{"wait_s": 50})
		if err != nil || a.Error != nil { // ombud is away
			<-time.After(time.Second)
		}
		for _, m := range a.Result.Messages {
			result := fields{"key": m.Key, "result": "sent"}
			switch {
			case sent[m.Key]: // it was written, and the word of it was lost
			case m.Again: // it was handed to another life of this program
				result["result"], result["error"] = "unknown", "nobody knows what was written before"
			default:
				_, err := fmt.Fprintln(os.Stdout, m.Chat, strings.ReplaceAll(m.Text, "\n", `\n`))
				if sent[m.Key] = err == nil; err != nil { // a part of it may be out
					result["result"], result["error"] = "unknown", err.Error()
				}
			}
			if _, err := call("adapter.ack", result); err != nil {
				log.Print("not settled, so it comes again: ", err)
			}
		}
	}
}

func main() {
	go say()
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		deliver(lines.Text())
	}
}
