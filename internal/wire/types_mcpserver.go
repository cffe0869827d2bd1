package wire

import "encoding/json"

// MCPServer is a server of the Model Context Protocol whose tools can be called.
type MCPServer struct {
	Name       string          `json:"name"`
	Command    []string        `json:"command,omitempty"`    // the program and its arguments; or
	URL        string          `json:"url,omitempty"`        // where it is reached over HTTP
	Env        []string        `json:"env,omitempty"`        // VARIABLE=VALUE, ••• where the value is not a name of a secret
	Dir        string          `json:"dir,omitempty"`        // where the program works; absent: its own directory
	Network    string          `json:"network,omitempty"`    // none, proxy, all; of a program
	Read       []string        `json:"read,omitempty"`       // paths it may read besides its program and the system's
	Write      []string        `json:"write,omitempty"`      // paths it may change besides its own directory
	Headers    []string        `json:"headers,omitempty"`    // NAME=VALUE, as Env
	Private    bool            `json:"private,omitempty"`    // its address may be of this machine or its networks
	ClientID   string          `json:"client_id,omitempty"`  // who ombud is to its authorization server
	Reads      []string        `json:"reads,omitempty"`      // tools that change nothing, as the operator says
	Repeatable []string        `json:"repeatable,omitempty"` // tools of which a second call is as good as one, as the operator says
	TimeoutS   int             `json:"timeout_s"`            // seconds a call may take
	Extra      []string        `json:"extra,omitempty"`      // names of settings that were imported and mean nothing here
	State      string          `json:"state"`                // off, stopped, starting, ready, waiting, held
	SinceAt    int64           `json:"since_at"`             // Unix µs
	PID        int             `json:"pid,omitempty"`        //
	Failures   int             `json:"failures,omitempty"`   // in a row
	CrashLoop  bool            `json:"crash_loop,omitempty"` // it is gone again and again
	Error      string          `json:"error,omitempty"`      // why it was gone last, while it is not well
	Hint       string          `json:"hint,omitempty"`       // what to do about it
	NextAt     int64           `json:"next_at,omitempty"`    // Unix µs: when it is reached again
	AddedAt    int64           `json:"added_at"`             // Unix µs
	ChangedAt  int64           `json:"changed_at,omitempty"` // Unix µs: since when it offers other than what was accepted
	Says       string          `json:"says,omitempty"`       // what it calls itself
	Protocol   string          `json:"protocol,omitempty"`   // the version that is spoken
	Cut        bool            `json:"cut,omitempty"`        // it offers more than is taken
	LoggedIn   bool            `json:"logged_in,omitempty"`  // it takes a token of a login
	Noise      int64           `json:"noise,omitempty"`      // lines on its standard output that were no message
	Tools      []MCPServerTool `json:"tools"`                // what it offers; last known, while it is not ready

	NoElicit bool `json:"no_elicitation,omitempty"` // it may not ask the operator anything
	Sampling bool `json:"sampling,omitempty"`       // it may ask a model, for whom that was granted
}

// MCPServerTool is what became of something a server offers.
type MCPServerTool struct {
	Tool        string   `json:"tool"`                 // as the server calls it
	Name        string   `json:"name,omitempty"`       // as ombud does
	State       string   `json:"state"`                // offered, new, changed, gone, refused
	Reason      string   `json:"reason,omitempty"`     // why it is refused
	Description string   `json:"description"`          // the server's words
	Needs       []string `json:"needs,omitempty"`      // scopes a call needs
	Access      string   `json:"access,omitempty"`     // for the default agent, now: allow, ask, deny
	Why         string   `json:"why,omitempty"`        // why not allow
	ReadOnly    bool     `json:"read_only,omitempty"`  // the operator says so
	Repeatable  bool     `json:"repeatable,omitempty"` // the operator says so
}

// MCPServerAddRequest adds a server: a program or an address. The fields are as in MCPServer.
type MCPServerAddRequest struct {
	Name       string             `json:"name"`
	Command    []string           `json:"command,omitempty"` // the program is an absolute path
	URL        string             `json:"url,omitempty"`
	Env        []string           `json:"env,omitempty"` // VARIABLE=VALUE; a value may hold {{secret:NAME}}
	Dir        string             `json:"dir,omitempty"`
	Network    string             `json:"network,omitempty"` // empty: proxy
	Read       []string           `json:"read,omitempty"`
	Write      []string           `json:"write,omitempty"`
	Headers    []string           `json:"headers,omitempty"` // NAME=VALUE; a value may hold {{secret:NAME}}
	Private    bool               `json:"private,omitempty"`
	ClientID   string             `json:"client_id,omitempty"`
	Reads      []string           `json:"reads,omitempty"`
	Repeatable []string           `json:"repeatable,omitempty"`
	TimeoutS   int                `json:"timeout_s,omitempty"` // 0: 60
	Disabled   bool               `json:"disabled,omitempty"`
	Extra      []MCPServerSetting `json:"extra,omitempty"` // that were imported and mean nothing here

	NoElicit bool `json:"no_elicitation,omitempty"`
	Sampling bool `json:"sampling,omitempty"`
}

// MCPServerSetting is a setting of another program's file.
type MCPServerSetting struct {
	Name  string          `json:"name"`
	Value json.RawMessage `json:"value"`
}

// MCPServerRequest names a server.
type MCPServerRequest struct {
	Name string `json:"name"`
}

// MCPServerResult is a server.
type MCPServerResult struct {
	Server MCPServer `json:"server"`
}

// MCPServerTestResult is what a server offers, or why it does not get ready.
type MCPServerTestResult struct {
	Server  MCPServer `json:"server"`
	Problem *Problem  `json:"problem,omitempty"`
}

// MCPServerListResult is every server there is.
type MCPServerListResult struct {
	Servers []MCPServer `json:"servers"`
}

// MCPServerDiffResult is what a server offers other than what was accepted.
type MCPServerDiffResult struct {
	Seen  string           `json:"seen"` // stands for the whole offer; accepting it takes this
	Diffs []MCPServerDelta `json:"diffs"`
}

// MCPServerDelta is one thing that is offered otherwise.
type MCPServerDelta struct {
	Tool  string `json:"tool"`  // as the server calls it
	State string `json:"state"` // new, changed, gone
	Text  string `json:"text"`  // a unified diff
}

// MCPServerAcceptRequest takes what a server offers.
type MCPServerAcceptRequest struct {
	Name string `json:"name"`
	Seen string `json:"seen"` // of the diff that was read
}

// MCPServerEnableRequest switches a server on or off.
type MCPServerEnableRequest struct {
	Name string `json:"name"`
	On   bool   `json:"on"`
}

// MCPServerLogsRequest asks for the last lines of a server's standard error.
type MCPServerLogsRequest struct {
	Name  string `json:"name"`
	Lines int    `json:"lines,omitempty"` // 0: all that are kept
}

// MCPServerLogsResult is the last lines, the oldest first.
type MCPServerLogsResult struct {
	Lines []MCPServerLine `json:"lines"`
}

// MCPServerLine is a line a server wrote.
type MCPServerLine struct {
	At   int64  `json:"at"` // Unix µs
	Text string `json:"text"`
}

// MCPServerBrowse is where the operator logs in to a server.
type MCPServerBrowse struct {
	URL string `json:"url"`
}

// NoteName implements Note.
func (MCPServerBrowse) NoteName() string { return "mcpserver.browse" }
