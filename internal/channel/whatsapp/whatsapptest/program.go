package whatsapptest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Main is the program, and does not return, if this process was started as one; else it
// does nothing.
func Main() {
	if name := filepath.Base(os.Args[0]); name != "wacli" && name != "wacli.exe" {
		return
	}
	p := &program{dir: filepath.Dir(os.Args[0]), out: os.Stdout, notes: os.Stderr}
	os.Exit(p.main(os.Args[1:]))
}

// Run does in this process what the program does in its own, for tests that hold the
// clock. A fault that is an end of the process is none here.
func (w *Wacli) Run(args ...string) (out []byte, code int) {
	var b bytes.Buffer
	p := &program{dir: w.dir, out: &b, notes: io.Discard}
	code = p.main(args)
	return b.Bytes(), code
}

type program struct {
	dir        string
	out, notes io.Writer
	fault      Fault
	sent       string
}

// childWord is the first argument of a child that stays.
const childWord = "stay"

func (p *program) main(args []string) int {
	if len(args) == 2 && args[0] == childWord {
		p.stay(args[1])
		return 0
	}
	if len(args) == 0 {
		return 1
	}
	p.fault = p.next(args[0])
	defer func() {
		env := os.Environ()
		slices.Sort(env)
		_ = appendLine(filepath.Join(p.dir, "calls"), Call{Args: args, Env: env, Text: p.sent}) // a test will miss it
	}()
	kind, address, _ := strings.Cut(string(p.fault), " ")
	switch Fault(kind) {
	case Fail:
		fmt.Fprintln(p.notes, args[0]+": request failed with status 500")
		return 1
	case NotSent:
		fmt.Fprintln(p.out, `{"ok": false, "sent": false, "error": "chat is locked"}`)
		return 1
	case DieBefore:
		die()
	case "hang":
		p.hang(address)
	case Big:
		junk := strings.Repeat("x", 1<<20)
		fmt.Fprintln(p.out, junk)
		fmt.Fprintln(p.notes, junk)
	}
	out, err := p.do(args)
	switch Fault(kind) {
	case FailAfter:
		fmt.Fprintln(p.notes, args[0]+": context deadline exceeded (Client.Timeout exceeded while awaiting headers)")
		return 1
	case DieAfter:
		die()
	case "hang-after":
		p.hang(address)
	case Leave:
		p.child("")
	case Garbage:
		fmt.Fprintln(p.out, "<html>502 Bad Gateway</html>")
		return 0
	}
	if err != nil {
		fmt.Fprintf(p.notes, "%s: %v\n", args[0], err)
		if errors.Is(err, errUsage) {
			return 2
		}
		return 1
	}
	fmt.Fprintln(p.out, out)
	return 0
}

// next takes the next fault of a command; of two processes one gets it.
func (p *program) next(command string) Fault {
	all, _ := filepath.Glob(filepath.Join(p.dir, "fault-"+command+"-*")) // sorted; the pattern is ours
	for _, path := range all {
		data, err := os.ReadFile(path)
		if err == nil && os.Remove(path) == nil {
			return Fault(data)
		}
	}
	return ""
}

func die() {
	self, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = self.Kill()
	}
	<-time.After(time.Minute)
	panic(err)
}

// hang starts a child that stays, and stays.
func (p *program) hang(address string) {
	p.child(address)
	p.stay(address)
}

func (p *program) child(address string) {
	cmd := exec.Command(os.Args[0], childWord, address)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		panic(err)
	}
}

func (p *program) stay(address string) {
	if address != "" {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			panic(err)
		}
		defer conn.Close()
	}
	<-time.After(5 * time.Minute) // and not for ever, should a test fail
}

var errUsage = errors.New("usage")

func (p *program) do(args []string) (string, error) {
	s, err := readState(p.dir)
	if err != nil {
		return "", err
	}
	switch args[0] {
	case "status":
		return s.print(), nil
	case "messages":
		return p.messages(s, args[1:])
	case "api":
		return s.api(args[1:])
	case "send":
		return p.send(s, args[1:])
	}
	return "", errUsage
}

func (s State) print() string {
	if s.Away {
		return fmt.Sprintf("daemon: not reachable\ndnd: %v\ninitial access configured: true\nchats: %d\nmessages: 0", s.DND, len(s.Chats))
	}
	return fmt.Sprintf("connected: %v\nuser: %s\ndnd: %v\ninitial access configured: true\nchats: %d\nmessages: 0", s.Connected, s.User, s.DND, len(s.Chats))
}

var errAway = errors.New("dial tcp 127.0.0.1:8765: connect: connection refused")

func (s State) api(args []string) (string, error) {
	switch {
	case len(args) != 2 || args[0] != "GET":
		return "", errUsage
	case s.Away:
		return "", errAway
	}
	u, err := url.Parse(args[1])
	if err != nil {
		return "", err
	}
	switch u.Path {
	case "/status":
		return pretty(struct {
			Connected bool   `json:"connected"`
			User      string `json:"user_jid"`
			LID       string `json:"user_lid,omitempty"`
			DND       bool   `json:"dnd_mode"`
		}{s.Connected, s.User, s.LID, s.DND}), nil
	case "/chats":
		filter, query := u.Query().Get("filter"), strings.ToLower(u.Query().Get("query"))
		kept := slices.DeleteFunc(s.Chats, func(c Chat) bool {
			return filter == "unlocked" && c.Locked || filter == "locked" && !c.Locked || !strings.Contains(strings.ToLower(c.Name+"\n"+c.JID), query)
		})
		return pretty(struct {
			Chats []Chat `json:"chats"`
		}{kept}), nil
	}
	return "", errors.New("request failed with status 404")
}

// set parses flags as wacli does.
func set(name string, args []string, define func(*flag.FlagSet)) error {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	define(fs)
	if fs.Parse(args) != nil {
		return errUsage
	}
	return nil
}

func (p *program) messages(s State, args []string) (string, error) {
	var after, before string
	limit := 100
	if err := set("messages", args, func(fs *flag.FlagSet) {
		fs.StringVar(&after, "after", "", "")
		fs.StringVar(&before, "before", "", "")
		fs.IntVar(&limit, "limit", limit, "")
	}); err != nil {
		return "", err
	}
	if s.Away {
		return "", errAway
	}
	all, err := readLines[Message](filepath.Join(p.dir, "messages"))
	if err != nil {
		return "", err
	}
	if t, err := time.Parse(time.RFC3339, after); err == nil { // of another form it is no filter
		all = slices.DeleteFunc(all, func(m Message) bool { return m.Timestamp.Unix() < t.Unix() })
	}
	if t, err := time.Parse(time.RFC3339, before); err == nil {
		all = slices.DeleteFunc(all, func(m Message) bool { return m.Timestamp.Unix() > t.Unix() })
	}
	slices.SortStableFunc(all, func(a, b Message) int { return cmp.Compare(a.Timestamp.Unix(), b.Timestamp.Unix()) })
	all = all[max(0, len(all)-limit):]
	for i := range all {
		all[i].MentionsMe, all[i].QuotedIsFromMe, all[i].MentionCount = false, false, 0
	}
	return pretty(struct {
		Messages []Message `json:"messages"`
		Chat     *Chat     `json:"resolved_chat"`
		Sender   *Chat     `json:"resolved_sender"`
	}{Messages: all}), nil
}

func (p *program) send(s State, args []string) (string, error) {
	var to, text string
	if err := set("send", args, func(fs *flag.FlagSet) {
		fs.StringVar(&to, "to", "", "")
		fs.StringVar(&text, "text", "", "")
	}); err != nil {
		return "", err
	}
	if s.Away {
		return "", errAway
	}
	chat, err := s.resolve(to)
	switch text = strings.TrimSpace(text); {
	case to == "":
		return "", errUsage
	case err != nil:
		return "", err
	case !s.DND:
		return "", errors.New("DND mode is off; automation is disabled")
	case chat.Locked:
		return "", fmt.Errorf("chat %s is locked", chat.JID)
	case !s.Connected:
		return "", errors.New("WhatsApp client is not connected")
	case text == "":
		return "", errors.New("text or media_path required")
	}
	m := Message{
		ID: fmt.Sprintf("%s%X%X", sentPrefix, os.Getpid(), time.Now().UnixNano()), ChatJID: chat.JID, SenderJID: s.User, Content: text,
		Timestamp: time.Now().UTC().Truncate(time.Second), IsFromMe: true, MessageType: "text",
	}
	p.sent = text
	if err := appendLine(filepath.Join(p.dir, "messages"), m); err != nil {
		return "", err
	}
	return pretty(struct {
		OK      bool    `json:"ok"`
		Chat    Chat    `json:"resolved_to"`
		Message Message `json:"message"`
	}{true, chat, m}), nil
}

var direct = regexp.MustCompile(`^[0-9]+@(s\.whatsapp\.net|lid)$`)

// resolve finds a chat as wacli does: by its id, or else by what is near it, which is why
// nobody should hand it a name.
func (s State) resolve(to string) (Chat, error) {
	if c, ok := s.chat(to); ok {
		return c, nil
	}
	if direct.MatchString(to) {
		return Chat{JID: to}, nil
	}
	for _, c := range s.Chats {
		if to != "" && strings.Contains(strings.ToLower(c.Name), strings.ToLower(to)) {
			return c, nil
		}
	}
	return Chat{}, fmt.Errorf("no matches found for %q", to)
}

func pretty(v any) string {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		panic(err) // of our own types
	}
	return string(data)
}
