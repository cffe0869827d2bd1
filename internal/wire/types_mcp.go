package wire

import "encoding/json"

// MCPTokenRequest holds the credential of the client of the Model Context Protocol that asks.
type MCPTokenRequest struct {
	Token string `json:"token"`
}

// MCPTool is a tool such a client can try.
type MCPTool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Input       json.RawMessage `json:"input"`       // JSON Schema
	ReadOnly    bool            `json:"read_only"`   // it changes nothing
	Destructive bool            `json:"destructive"` // what it changes cannot be taken back, or nobody says that it can
	Repeatable  bool            `json:"repeatable"`  // a second call is as good as one
}

// MCPToolsResult answers mcp.tools.
type MCPToolsResult struct {
	Subject string    `json:"subject"` // who calls are made as
	Tools   []MCPTool `json:"tools"`
}

// MCPCallRequest is a call such a client wants made.
type MCPCallRequest struct {
	Token string          `json:"token"`
	Tool  string          `json:"tool"`
	Input json.RawMessage `json:"input,omitempty"`  // an object that fits the tool's schema; absent: {}
	Key   string          `json:"key,omitempty"`    // the same key is the same call, however often it is sent; empty: each is new
	WaitS int             `json:"wait_s,omitempty"` // how long to wait for a person's decision before it is answered as waiting
}

// MCPClient is a coding agent that may connect by itself.
type MCPClient struct {
	Name    string `json:"name"`
	Subject string `json:"subject"`           // what it is granted as
	AddedAt int64  `json:"added_at"`          // Unix µs
	SeenAt  int64  `json:"seen_at,omitempty"` // Unix µs: when it last asked for something; 0 for never since the daemon started
}

// MCPClientRequest names a client.
type MCPClientRequest struct {
	Name string `json:"name"` // 1 to 32 of a-z, 0-9 and -
}

// MCPClientAddResult holds the credential, which is told only here.
type MCPClientAddResult struct {
	Client MCPClient `json:"client"`
	Token  string    `json:"token"`
	URL    string    `json:"url,omitempty"` // where it connects over the network; empty if nothing listens
}

// MCPClientListResult is every client there is.
type MCPClientListResult struct {
	Clients []MCPClient `json:"clients"`
	URL     string      `json:"url,omitempty"` // where they connect over the network; empty if nothing listens
}

// MCPClientLendResult is a credential that is good until the daemon ends or the client is
// removed, for a program that the operator starts for it.
type MCPClientLendResult struct {
	Token string `json:"token"`
}
