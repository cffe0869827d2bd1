package client

import (
	"bufio"
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/tool"
)

func TestFilesOfOthersAreReadAsTheyAre(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file     string
		want     string // of the specs as JSON
		warnings []string
	}{
		"claude": {
			`{"mcpServers":{"filesystem":{"command":"npx","args":["-y","@modelcontextprotocol/server-filesystem","/tmp"],"env":{"A":"b"}},"web":{"type":"http","url":"https://example.com/mcp","headers":{"Authorization":"Bearer {{secret:web}}"}}}}`,
			`[{"name":"filesystem","command":["npx","-y","@modelcontextprotocol/server-filesystem","/tmp"],"env":{"A":"b"}},{"name":"web","url":"https://example.com/mcp","headers":{"Authorization":"Bearer {{secret:web}}"}}]`, nil,
		},
		"vs code": {
			"{\n // my servers\n \"inputs\": [],\n \"servers\": {\"My Server\": {\"type\":\"stdio\",\"command\":\"x\",\"args\":[\"a//b\",\"${input:key}\"],\"envFile\":\".env\",},},}",
			`[{"name":"my-server","command":["x","a//b","${input:key}"],"disabled":true,"extra":{"envFile":".env"}}]`,
			[]string{`"inputs" beside servers`, `"My Server" is called my-server`, `my-server: "envFile" means nothing here`, `my-server: args[1] has a ${…}`},
		},
		"settings": {`{"editor":1,"mcp":{"servers":{"a":{"url":"http://x/"}}}}`, `[{"name":"a","url":"http://x/"}]`, nil},
		"wrong types": {
			`{"mcpServers":{"a":{"command":"x","args":"y","timeout":5},"b":7,"c":{}}}`, `[{"name":"a","command":["x"],"extra":{"args":"y","timeout":5}}]`,
			[]string{`a: "args" is not what it should be`, `"args" means nothing`, `"timeout" means nothing`, "b is left out: it is no object", "c is left out: it has neither"},
		},
		"sse":   {`{"mcpServers":{"a":{"type":"sse","url":"https://x/sse"}}}`, `[{"name":"a","url":"https://x/sse","disabled":true,"extra":{"type":"sse"}}]`, []string{"HTTP+SSE"}},
		"names": {`{"mcpServers":{"9":{"command":"x"},"A_b":{"command":"x"},"a-b":{"command":"x"}}}`, `[{"name":"mcp-9","command":["x"]},{"name":"a-b","command":["x"]},{"name":"a-b-2","command":["x"]}]`, []string{"mcp-9", "a-b", "a-b-2"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := Import([]byte(c.file))
			if err != nil {
				t.Fatal(err)
			}
			raw, err := json.Marshal(got.Specs)
			if err != nil || string(raw) != c.want {
				t.Errorf("%v\n%s\n%s", err, raw, c.want)
			}
			if len(got.Warnings) != len(c.warnings) {
				t.Errorf("warnings %q", got.Warnings)
			}
			for i, w := range c.warnings {
				if i < len(got.Warnings) && !strings.Contains(got.Warnings[i], w) {
					t.Errorf("warning %d is %q, want %q", i, got.Warnings[i], w)
				}
			}
		})
	}
	for _, file := range []string{"", "[]", "{}", `{"mcpServers":[]}`, `{"servers":`} {
		if _, err := Import([]byte(file)); !fault.Is(err, fault.Invalid) {
			t.Errorf("%q: %v", file, err)
		}
	}
}

func FuzzImport(f *testing.F) {
	f.Add([]byte(`{"mcpServers":{"a b":{"command":"x","args":["y"],"z":[1,{"a":2}]}}}`))
	f.Add([]byte("{\"servers\":{\"a\":{\"url\":\"http://x\",/* no */}}}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := Import(text)
		if err != nil {
			return
		}
		var names []string
		for _, s := range got.Specs {
			if CheckName(s.Name) != nil || s.Remote() == (len(s.Command) > 0) {
				t.Errorf("%+v", s)
			}
			names = append(names, s.Name)
		}
		slices.Sort(names)
		if len(slices.Compact(names)) != len(got.Specs) {
			t.Errorf("a name twice: %q", names)
		}
	})
}

// FuzzEnvelope holds the id that is found in pieces against the one that is read whole.
func FuzzEnvelope(f *testing.F) {
	f.Add([]byte(`{"result":{"id":9,"a":["id",{"id":1}]},"jsonrpc":"2.0","id":7}`), 3)
	f.Add([]byte(`{"id" : "a\"}b" , "x":"\\"}`), 1)
	f.Add([]byte(`{"x":"id","id":null}`), 2)
	f.Fuzz(func(t *testing.T, text []byte, step int) {
		var m struct {
			ID json.RawMessage `json:"id"`
		}
		var keys map[string]json.RawMessage
		if json.Unmarshal(text, &keys) != nil || json.Unmarshal(text, &m) != nil {
			e := envelope{}
			e.feed(text) // it does not panic
			return
		}
		raw, there := keys["id"]
		if !there || len(raw) > maxID || bytes.Count(text, []byte(`"id"`)) != 1 || bytes.Contains(text, []byte(`\u`)) || raw[0] == '{' || raw[0] == '[' {
			return // two of one name: which counts is not said; ids are text or numbers
		}
		e := envelope{}
		step = max(1, min(step, len(text)))
		for rest := text; len(rest) > 0; {
			n := min(step, len(rest))
			e.feed(rest[:n])
			rest = rest[n:]
		}
		if e.found() != string(raw) {
			t.Errorf("%s: found %q, is %q", text, e.found(), raw)
		}
	})
}

func TestNamesOfTools(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"create_issue": "mcp.git-hub.create_issue", "a.b/c": "mcp.git-hub.a_b_c_", "": "mcp.git-hub._", "ü": "mcp.git-hub.__",
		strings.Repeat("x", 100): "mcp.git-hub." + strings.Repeat("x", 43) + "_",
	} {
		got := toolName("git-hub", name)
		if !strings.HasPrefix(got, want) || len(got) > registryName || got != toolName("git-hub", name) {
			t.Errorf("%q: %s", name, got)
		}
	}
	if toolName("a", "b.c") == toolName("a", "b/c") || tool.ModelName(toolName("a", "b.c")) == tool.ModelName(toolName("a", "b_c")) {
		t.Error("two names became one")
	}
}

func FuzzToolName(f *testing.F) {
	f.Add("a b")
	f.Fuzz(func(t *testing.T, name string) {
		r, _ := tool.NewRegistry(discard)
		def, err := (&Spec{Name: "s"}).definition((&Spec{Name: "s"}).uses(Item{Kind: kindTool, Name: name, Input: json.RawMessage(`{"type":"object"}`)})[0])
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Add(def, nothing); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	})
}

func FuzzReadLine(f *testing.F) {
	f.Add([]byte("a\nb\r\n\nc"))
	f.Fuzz(func(t *testing.T, text []byte) {
		r := bufio.NewReaderSize(bytes.NewReader(text), 16)
		var got [][]byte
		for {
			line, long, err := readLine(r)
			if long != nil {
				t.Fatal("too long")
			}
			got = append(got, bytes.Clone(line))
			if err != nil {
				break
			}
		}
		var want [][]byte
		for _, line := range bytes.Split(text, []byte("\n")) {
			want = append(want, bytes.TrimSpace(line))
		}
		if !slices.EqualFunc(got, want, func(a, b []byte) bool { return bytes.Equal(a, b) }) {
			t.Errorf("%q: %q", text, got)
		}
	})
}

// FuzzEdit holds a diff to making the one of the other.
func FuzzEdit(f *testing.F) {
	f.Add("a\nb\nc", "a\nc\nd")
	f.Fuzz(func(t *testing.T, a, b string) {
		from, to := strings.Split(a, "\n"), strings.Split(b, "\n")
		if len(from) > 200 || len(to) > 200 {
			return
		}
		var was, is []string
		for _, e := range edit(from, to) {
			if e.op != '+' {
				was = append(was, e.line)
			}
			if e.op != '-' {
				is = append(is, e.line)
			}
		}
		if !slices.Equal(was, from) || !slices.Equal(is, to) {
			t.Errorf("%q, %q: %q, %q", a, b, was, is)
		}
		if text := unified("a", "b", from, to); a != b && !strings.Contains(text, "@@ -") {
			t.Errorf("no hunk: %q", text)
		}
	})
}

func TestWhatIsRefusedOfASpec(t *testing.T) {
	t.Parallel()
	program := Spec{Name: "a", Command: []string{"/bin/x"}}
	address := Spec{Name: "a", URL: "https://example.com/mcp"}
	for name, c := range map[string]struct {
		of     Spec
		change func(*Spec)
		want   string
	}{
		"name":             {program, func(s *Spec) { s.Name = "A" }, "begins with a-z"},
		"neither":          {program, func(s *Spec) { s.Command = nil }, "either a program or an address"},
		"both":             {program, func(s *Spec) { s.URL = "https://x" }, "either a program or an address"},
		"relative":         {program, func(s *Spec) { s.Command[0] = "x" }, "absolute"},
		"preload":          {program, func(s *Spec) { s.Env = map[string]string{"LD_PRELOAD": "x"} }, "LD_PRELOAD"},
		"variable":         {program, func(s *Spec) { s.Env = map[string]string{"a b": "x"} }, `"a b"`},
		"secret's name":    {program, func(s *Spec) { s.Env = map[string]string{"A": "{{secret:Not A Name}}"} }, "the value of A"},
		"network":          {program, func(s *Spec) { s.Network = "some" }, "none, proxy or all"},
		"path":             {program, func(s *Spec) { s.Read = []string{"../x"} }, "clean absolute"},
		"program's header": {program, func(s *Spec) { s.Headers = map[string]string{"A": "x"} }, "for an address"},
		"scheme":           {address, func(s *Spec) { s.URL = "ftp://x/" }, "no http"},
		"password":         {address, func(s *Spec) { s.URL = "https://a:b@x/" }, "password"},
		"header":           {address, func(s *Spec) { s.Headers = map[string]string{"Mcp-Session-Id": "x"} }, "Mcp-Session-Id"},
		"line end":         {address, func(s *Spec) { s.Headers = map[string]string{"A": "x\r\nB: y"} }, "line ends"},
		"environment":      {address, func(s *Spec) { s.Env = map[string]string{"A": "x"} }, "for a program"},
		"timeout":          {address, func(s *Spec) { s.Timeout = 2 * maxTimeout }, "at most"},
	} {
		s := c.of
		s.Command = slices.Clone(s.Command)
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		c.change(&s)
		if err := s.Check(); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	shown := Hidden(map[string]string{"B": "plain", "A": "Bearer {{secret:x}}"})
	if !slices.Equal(shown, []string{"A=Bearer {{secret:x}}", "B=•••"}) {
		t.Error(shown)
	}
}

// FuzzLegible holds a list to being one the library reads, whatever its tools are.
func FuzzLegible(f *testing.F) {
	f.Add([]byte(`{"tools":[{"name":"a","inputSchema":{}},{"name":"b","description":7},null,3,"x"],"nextCursor":"c"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var all map[string]json.RawMessage
		var before []json.RawMessage
		if json.Unmarshal(text, &all) != nil || json.Unmarshal(all["tools"], &before) != nil {
			return
		}
		var after struct {
			Tools []*mcp.Tool `json:"tools"`
		}
		if err := json.Unmarshal(legible(text), &after); err != nil || len(after.Tools) != len(before) || slices.Contains(after.Tools, nil) {
			t.Errorf("%q: %q, %v", text, legible(text), err)
		}
	})
}
