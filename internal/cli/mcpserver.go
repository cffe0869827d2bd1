package cli

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ombud-run/ombud/internal/fault"
	mcpclient "github.com/ombud-run/ombud/internal/mcp/client"
	"github.com/ombud-run/ombud/internal/wire"
)

// mcpServerCmds are the commands about servers whose tools ombud calls.
func (a *app) mcpServerCmds() []*cobra.Command {
	named := func(use, short, long string, run func(ctx context.Context, name string) error) *cobra.Command {
		return a.command(spec{use: use + " NAME", short: short, long: long, example: "ombud mcp " + use + " github", args: cobra.ExactArgs(1)},
			func(ctx context.Context, args []string) error { return run(ctx, args[0]) })
	}
	return []*cobra.Command{
		a.mcpAddCmd(),
		a.command(spec{use: "list", short: "servers whose tools can be called", example: "ombud mcp list --json"}, a.mcpList),
		named("test", "reach a server and show what it offers", "Nothing of it is called.", a.mcpTest),
		named("diff", "show what a server offers other than what you accepted", "", a.mcpDiff),
		a.mcpAcceptCmd(),
		a.mcpLogsCmd(),
		named("login", "log in to a server in a browser", `Finds out where the server has its users log in, registers ombud there, and prints the
address to open. The tokens are kept sealed and renewed by themselves.`, a.mcpLogin),
		named("enable", "reach a server again", "", func(ctx context.Context, name string) error { return a.mcpEnable(ctx, name, true) }),
		named("disable", "keep a server and do not reach it", "", func(ctx context.Context, name string) error { return a.mcpEnable(ctx, name, false) }),
		named("rm", "end a server and forget it", `What was granted for its tools stays granted: take it back with ombud caps revoke.
Its own directory stays too.`, func(ctx context.Context, name string) error {
			if _, err := a.client.MCPServerRemove(ctx, wire.MCPServerRequest{Name: name}); err != nil {
				return err
			}
			return a.show("mcp-rm/1", wire.MCPServerRequest{Name: name}, func(p *page) { p.line("removed %s and its tools", oneLine(name)) })
		}),
	}
}

func (a *app) mcpAddCmd() *cobra.Command {
	var req wire.MCPServerAddRequest
	var timeout time.Duration
	var from string
	var accept bool
	var c *cobra.Command
	c = a.command(spec{
		use:   "add NAME [flags] -- COMMAND ARGS… | NAME --url URL | --from FILE",
		short: "add a server whose tools can be called",
		long: `Adds a program that speaks the Model Context Protocol, a server that is reached over HTTP,
or all servers of a file of another program (.mcp.json, claude_desktop_config.json,
.vscode/mcp.json). It is reached, what it offers is shown, and you accept it or not. What it
offers otherwise later is not used before you accept that.

Nobody can call any of its tools before you grant what a call needs: mcp.call:NAME/TOOL.
A program sees the system's directories, the files its command line names, what --read and
--write give it, and a directory of its own; its network goes through ombud's rules. Keys
are given by the name of a secret: --env 'KEY={{secret:a-key}}'. With --from, --read, --write,
--network and --timeout are for every program of the file, and --no-elicitation and --sampling
for every server.

While a call is under way a server may ask you to fill something in or to open an address,
unless you say --no-elicitation: ombud inbox shows it, ombud approve answers it.`,
		example: `ombud mcp add files --write ~/Notes -- npx -y @modelcontextprotocol/server-filesystem ~/Notes
ombud mcp add github --url https://api.githubcopilot.com/mcp/ --header 'Authorization=Bearer {{secret:github}}'
ombud mcp add --from .mcp.json`,
		args: cobra.ArbitraryArgs,
	}, func(ctx context.Context, args []string) (err error) {
		dash := c.ArgsLenAtDash()
		if from != "" {
			if len(args) > 0 {
				return fault.New(fault.Usage, "a file has its own names: ombud mcp add --from FILE takes none")
			}
			if err := wholeDirs(&req); err != nil {
				return err
			}
			req.TimeoutS = int(timeout / time.Second)
			return a.mcpImport(ctx, from, req)
		}
		switch {
		case len(args) == 0 || dash == 0:
			return fault.New(fault.Usage, "a server needs a name").WithHint("ombud mcp add NAME -- COMMAND ARGS…, or --url URL")
		case req.URL == "" && (dash != 1 || len(args) < 2):
			return fault.New(fault.Usage, "the command of the server stands behind --").WithHint("ombud mcp add NAME -- COMMAND ARGS…, or --url URL")
		case req.URL != "" && len(args) > 1:
			return fault.New(fault.Usage, "a server is a program or an address, not both")
		}
		req.Name, req.TimeoutS = args[0], int(timeout/time.Second)
		if req.URL == "" {
			if req.Command, err = commandOf(args[1:]); err != nil {
				return err
			}
		}
		if err := wholeDirs(&req); err != nil {
			return err
		}
		return a.mcpAdd(ctx, req, accept)
	})
	f := c.Flags()
	f.StringVar(&req.URL, "url", "", "where the server is reached over HTTP")
	f.StringVar(&from, "from", "", "a file of another program that names servers")
	f.BoolVar(&accept, "accept", false, "accept what it offers now, unseen")
	f.StringArrayVar(&req.Env, "env", nil, "VARIABLE=VALUE for a program; {{secret:NAME}} in it is filled in")
	f.StringArrayVar(&req.Headers, "header", nil, "NAME=VALUE for an address; {{secret:NAME}} in it is filled in")
	f.StringVar(&req.Dir, "dir", "", "where the program works (default a directory of its own)")
	f.StringVar(&req.Network, "network", "", "of a program: none, proxy or all (default proxy)")
	f.StringArrayVar(&req.Read, "read", nil, "a path the program may read")
	f.StringArrayVar(&req.Write, "write", nil, "a path the program may change")
	f.BoolVar(&req.Private, "private", false, "the address may be of this machine or its networks")
	f.StringVar(&req.ClientID, "client-id", "", "who ombud is to the server's login (default: it registers itself)")
	f.StringArrayVar(&req.Reads, "reads", nil, "a tool of which you say that it changes nothing")
	f.StringArrayVar(&req.Repeatable, "repeatable", nil, "a tool of which you say that calling it twice is as good as once")
	f.DurationVar(&timeout, "timeout", 0, "how long a call may take (default 1m)")
	f.BoolVar(&req.NoElicit, "no-elicitation", false, "it may not ask you anything while a call is under way")
	f.BoolVar(&req.Sampling, "sampling", false, "it may ask your model, for whom you granted mcp.ask:NAME/sample and llm.call")
	return c
}

// wholeDirs makes whole paths of what a person wrote.
func wholeDirs(req *wire.MCPServerAddRequest) (err error) {
	for _, list := range []*[]string{&req.Read, &req.Write} {
		if *list, err = wholePaths(*list); err != nil {
			return err
		}
	}
	if req.Dir != "" {
		dirs, err := wholePaths([]string{req.Dir})
		if err != nil {
			return err
		}
		req.Dir = dirs[0]
	}
	return nil
}

// mcpAdd adds a server, shows what it offers and has that accepted.
func (a *app) mcpAdd(ctx context.Context, req wire.MCPServerAddRequest, accept bool) error {
	if _, err := a.client.MCPServerAdd(ctx, req); err != nil {
		return err
	}
	res, err := a.client.MCPServerTest(ctx, wire.MCPServerRequest{Name: req.Name})
	if err != nil {
		return err
	}
	if res.Problem != nil {
		err := a.show("mcp-add/1", res, func(p *page) { p.line("added %s, which does not get ready", oneLine(req.Name)) })
		if err != nil {
			return err
		}
		return problemFault(res.Problem)
	}
	q := a.asker()
	if !accept && (a.json || !q.can()) {
		return a.show("mcp-add/1", res, func(p *page) {
			serverPage(p, res.Server)
			p.line("")
			p.line("%s", p.faint("none of it is used before you accept it: ombud mcp accept "+req.Name))
		})
	}
	return a.mcpAccept(ctx, req.Name, accept, "mcp-add/1")
}

func problemFault(pr *wire.Problem) error {
	return fault.New(pr.Class, "%s", pr.Message).WithHint("%s", pr.Hint)
}

// serverImport is what came of a file, for --json.
type serverImport struct {
	Added    []wire.MCPServer `json:"added"`
	Failed   []string         `json:"failed"`
	Warnings []string         `json:"warnings"`
}

// mcpImport adds every server of a file. with is what all of its programs are given beside
// what the file says.
func (a *app) mcpImport(ctx context.Context, path string, with wire.MCPServerAddRequest) error {
	text, err := readPart(path, 1<<20)
	if err != nil {
		return err
	}
	file, err := mcpclient.Import(text)
	if err != nil {
		return err
	}
	out := serverImport{Added: []wire.MCPServer{}, Failed: []string{}, Warnings: append([]string{}, file.Warnings...)}
	for _, s := range file.Specs {
		req, err := importRequest(s)
		req.NoElicit, req.Sampling = with.NoElicit, with.Sampling
		if req.TimeoutS = with.TimeoutS; req.URL == "" {
			req.Read, req.Write, req.Network = with.Read, with.Write, with.Network
		}
		if err == nil {
			var res wire.MCPServerResult
			if res, err = a.client.MCPServerAdd(ctx, req); err == nil {
				out.Added = append(out.Added, res.Server)
			}
		}
		if fault.Is(err, fault.Unavailable) {
			return err // there is no daemon to add anything to
		}
		if err != nil {
			out.Failed = append(out.Failed, s.Name+": "+err.Error())
		}
	}
	err = a.show("mcp-import/1", out, func(p *page) {
		for _, w := range out.Warnings {
			p.line("%s %s", p.warn("note:"), oneLine(w))
		}
		for _, s := range out.Added {
			p.line("added %s: %s", oneLine(s.Name), oneLine(s.URL+strings.Join(s.Command, " ")))
		}
		for _, f := range out.Failed {
			p.line("%s %s", p.bad("not added:"), oneLine(f))
		}
		if len(out.Added) > 0 {
			p.line("%s", p.faint("nothing of them is used before you accept it: ombud mcp accept NAME"))
		}
	})
	if err == nil && len(out.Failed) > 0 {
		return fault.New(fault.Conflict, "%s of %s not added", plural(int64(len(out.Failed)), "server"), oneLine(path)).WithHint("the others are there; ombud mcp list")
	}
	return err
}

// importRequest looks up the program of a server as the shell would.
func importRequest(s mcpclient.Spec) (req wire.MCPServerAddRequest, err error) {
	req = wire.MCPServerAddRequest{Name: s.Name, URL: s.URL, Dir: s.Dir, Disabled: s.Disabled}
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		req.Env = append(req.Env, name+"="+s.Env[name])
	}
	for _, name := range slices.Sorted(maps.Keys(s.Headers)) {
		req.Headers = append(req.Headers, name+"="+s.Headers[name])
	}
	for _, name := range slices.Sorted(maps.Keys(s.Extra)) {
		req.Extra = append(req.Extra, wire.MCPServerSetting{Name: name, Value: s.Extra[name]})
	}
	if len(s.Command) > 0 {
		if req.Command, err = commandOf(s.Command); err != nil {
			return req, err
		}
	}
	if s.Dir == "" || strings.Contains(s.Dir, "${") {
		return req, err
	}
	dirs, bad := wholePaths([]string{s.Dir})
	if bad != nil {
		return req, bad
	}
	req.Dir = dirs[0]
	return req, err
}

func (a *app) mcpList(ctx context.Context, _ []string) error {
	res, err := a.client.MCPServerList(ctx)
	if err != nil {
		return err
	}
	return a.show("mcp-list/1", res, func(p *page) {
		if len(res.Servers) == 0 {
			p.line("no servers")
			p.line("%s", p.faint("ombud mcp add NAME -- COMMAND adds one"))
			return
		}
		t := table{head: []string{"SERVER", "STATE", "TOOLS", "WAITING", "WHY"}}
		for _, s := range res.Servers {
			offered, waiting := 0, 0
			for _, x := range s.Tools {
				switch x.State {
				case mcpclient.StateOffered:
					offered++
				case mcpclient.StateNew, mcpclient.StateChanged:
					waiting++
				}
			}
			why := s.Error
			if why == "" && s.ChangedAt > 0 {
				why = "offers other tools since " + p.clock(s.ChangedAt)
			}
			state := s.State
			if s.CrashLoop {
				state = "crash loop"
			}
			t.add(s.Name, state, plural(int64(offered), "tool"), plural(int64(waiting), "tool"), short(oneLine(why), 72))
		}
		p.table(t)
	})
}

func (a *app) mcpTest(ctx context.Context, name string) error {
	res, err := a.client.MCPServerTest(ctx, wire.MCPServerRequest{Name: name})
	if err != nil {
		return err
	}
	if err := a.show("mcp-test/1", res, func(p *page) { serverPage(p, res.Server) }); err != nil {
		return err
	}
	if res.Problem != nil {
		return problemFault(res.Problem)
	}
	return nil
}

// mayAsk is whom a server may ask something while a call is under way.
func mayAsk(s wire.MCPServer) string {
	switch {
	case s.NoElicit && s.Sampling:
		return "your model"
	case s.NoElicit:
		return "nobody"
	case s.Sampling:
		return "you and your model"
	}
	return "you"
}

// serverPage shows a server and what it offers.
func serverPage(p *page, s wire.MCPServer) {
	p.field("server", s.Name)
	p.field("runs", oneLine(strings.Join(s.Command, " ")))
	p.field("address", oneLine(s.URL))
	p.field("state", s.State)
	p.field("error", oneLine(s.Error))
	p.field("says", oneLine(s.Says))
	p.field("protocol", oneLine(s.Protocol))
	p.field("network", s.Network)
	p.field("environment", oneLine(strings.Join(s.Env, ", ")))
	p.field("headers", oneLine(strings.Join(s.Headers, ", ")))
	p.field("reads", oneLine(strings.Join(s.Read, ", ")))
	p.field("writes", oneLine(strings.Join(s.Write, ", ")))
	p.field("may ask", mayAsk(s))
	p.field("not used", oneLine(strings.Join(s.Extra, ", ")))
	if s.Cut {
		p.field("note", "it offers more tools than are taken")
	}
	for _, t := range s.Tools {
		name := t.Name
		if name == "" {
			name = t.Tool
		}
		p.line("")
		what := ""
		if t.Description != "" {
			what = "  " + short(oneLine(t.Description), 100)
		}
		p.line("%s  %s%s", p.strong(oneLine(name)), serverToolState(p, t), what)
		p.field("  reason", oneLine(t.Reason))
		p.field("  needs", oneLine(strings.Join(t.Needs, " and ")))
		access := t.Access
		if t.Why != "" {
			access += ": " + oneLine(t.Why)
		}
		p.field("  agent:main", access)
	}
}

func serverToolState(p *page, t wire.MCPServerTool) string {
	switch t.State {
	case mcpclient.StateOffered:
		return p.good("accepted")
	case mcpclient.StateRefused:
		return p.bad(t.State)
	}
	return p.warn(t.State)
}

func (a *app) mcpDiff(ctx context.Context, name string) error {
	res, err := a.client.MCPServerDiff(ctx, wire.MCPServerRequest{Name: name})
	if err != nil {
		return err
	}
	return a.show("mcp-diff/1", res, func(p *page) { diffPage(p, res) })
}

func diffPage(p *page, res wire.MCPServerDiffResult) {
	if len(res.Diffs) == 0 {
		p.line("it offers what you accepted")
	}
	for i, x := range res.Diffs {
		if i > 0 {
			p.line("")
		}
		p.line("%s  %s", p.strong(oneLine(x.Tool)), p.warn(x.State))
		for line := range strings.SplitSeq(strings.TrimSuffix(x.Text, "\n"), "\n") {
			switch {
			case strings.HasPrefix(line, "+"):
				p.line("%s", p.good(line))
			case strings.HasPrefix(line, "-"):
				p.line("%s", p.bad(line))
			default:
				p.line("%s", line)
			}
		}
	}
}

func (a *app) mcpAcceptCmd() *cobra.Command {
	var yes bool
	c := a.command(spec{
		use: "accept NAME", short: "accept what a server offers now",
		long: `Shows what is other than what you accepted before and takes it once you say yes. What the
server offers meanwhile is not taken with it.`,
		example: "ombud mcp accept github", args: cobra.ExactArgs(1),
	}, func(ctx context.Context, args []string) error { return a.mcpAccept(ctx, args[0], yes, "mcp-accept/1") })
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return c
}

func (a *app) mcpAccept(ctx context.Context, name string, yes bool, schema string) error {
	diff, err := a.client.MCPServerDiff(ctx, wire.MCPServerRequest{Name: name})
	if err != nil {
		return err
	}
	q := a.asker()
	if !yes && len(diff.Diffs) > 0 {
		if a.json || !q.can() {
			return fault.New(fault.Usage, "what a server offers is accepted on a terminal, or with --yes").WithHint("ombud mcp diff %s shows it", name)
		}
		if err := a.show("mcp-diff/1", diff, func(p *page) { diffPage(p, diff) }); err != nil {
			return err
		}
		if !q.yes("accept " + plural(int64(len(diff.Diffs)), "change") + " of " + name + "?") {
			return fault.New(fault.Cancelled, "nothing was accepted").WithHint("the server stays, and what it offers waits: ombud mcp accept %s", name)
		}
	}
	res, err := a.client.MCPServerAccept(ctx, wire.MCPServerAcceptRequest{Name: name, Seen: diff.Seen})
	if err != nil {
		return err
	}
	return a.show(schema, res, func(p *page) {
		offered, refused := 0, 0
		for _, t := range res.Server.Tools {
			switch t.State {
			case mcpclient.StateOffered:
				offered++
			case mcpclient.StateRefused:
				refused++
				p.line("%s %s: %s", p.bad("of no use:"), oneLine(t.Tool), oneLine(t.Reason))
			}
		}
		p.line("accepted %s: %s", oneLine(name), plural(int64(offered), "tool"))
		if offered > 0 {
			p.line("%s", p.faint("nobody can call them before an agent's role and grants have mcp.call:"+name+"/*; ombud mcp test "+name+" says who can"))
		}
	})
}

func (a *app) mcpLogsCmd() *cobra.Command {
	req := wire.MCPServerLogsRequest{}
	c := a.command(spec{
		use: "logs NAME", short: "the last lines a server wrote to its standard error", example: "ombud mcp logs github --lines 20", args: cobra.ExactArgs(1),
	}, func(ctx context.Context, args []string) error {
		req.Name = args[0]
		res, err := a.client.MCPServerLogs(ctx, req)
		if err != nil {
			return err
		}
		return a.show("mcp-logs/1", res, func(p *page) {
			for _, l := range res.Lines {
				p.line("%s  %s", p.faint(p.clock(l.At)), oneLine(l.Text))
			}
		})
	})
	c.Flags().IntVar(&req.Lines, "lines", 0, "how many (default all that are kept)")
	return c
}

func (a *app) mcpLogin(ctx context.Context, name string) error {
	res, err := a.client.MCPServerLogin(ctx, wire.MCPServerRequest{Name: name}, func(b wire.MCPServerBrowse) error {
		a.note("open this in a browser on this machine, and log in:\n%s", oneLine(b.URL))
		return nil
	})
	if err != nil {
		return err
	}
	return a.show("mcp-login/1", res, func(p *page) { p.line("logged in to %s", oneLine(name)) })
}

func (a *app) mcpEnable(ctx context.Context, name string, on bool) error {
	res, err := a.client.MCPServerEnable(ctx, wire.MCPServerEnableRequest{Name: name, On: on})
	if err != nil {
		return err
	}
	what := map[bool]string{true: "on", false: "off"}[on]
	return a.show("mcp-set/1", res, func(p *page) { p.line("%s is switched %s", oneLine(name), what) })
}
