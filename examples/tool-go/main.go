// A tool process for ombud: says what the SHA-256 of a text is. docs/tool-process.md
// is the protocol.
package main

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
)

const register = `{"type":"ToolRegister","tool_process_name":"digest","tools":[{"name":"sum",
	"description":"The SHA-256 of a text, in hex.","required_scope":"tool:digest.sum",
	"input_schema":{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}}]}`

func write(message any) {
	body, err := json.Marshal(message)
	if err == nil {
		_, err = os.Stdout.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...))
	}
	if err != nil {
		panic(err)
	}
}

func main() {
	var size uint32
	for binary.Read(os.Stdin, binary.BigEndian, &size) == nil {
		body := make([]byte, size)
		var m struct {
			Type   string `json:"type"`
			CallID string `json:"call_id"`
			Input  struct {
				Text string `json:"text"`
			} `json:"input"`
		}
		if _, err := io.ReadFull(os.Stdin, body); err != nil || json.Unmarshal(body, &m) != nil {
			return
		}
		switch m.Type {
		case "ToolHello":
			write(json.RawMessage(register))
		case "InvokeTool":
			sum := sha256.Sum256([]byte(m.Input.Text))
			write(map[string]string{"type": "ToolResult", "verified": "NotApplicable", "call_id": m.CallID, "output": hex.EncodeToString(sum[:])})
		case "ToolShutdown":
			return
		}
	}
}
