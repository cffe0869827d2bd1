package whatsapptest

import (
	"encoding/json"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func run(t *testing.T, w *Wacli, args ...string) (string, int) {
	t.Helper()
	cmd := exec.Command(w.Path, args...)
	out, err := cmd.Output()
	if err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

func TestTheProgramSendsAndLists(t *testing.T) {
	t.Parallel()
	w := NewWacli(t)
	begun := time.Now().Add(-time.Second)
	out, code := run(t, w, "send", "--to="+Ann.JID, "--text=-hé")
	var said struct {
		OK      bool    `json:"ok"`
		Message Message `json:"message"`
	}
	if err := json.Unmarshal([]byte(out), &said); err != nil || code != 0 || !said.OK || said.Message.ID == "" {
		t.Fatalf("%d %v %s", code, err, out)
	}
	w.Store(From(Team, "A1", "old", begun.Add(-time.Hour)))
	out, _ = run(t, w, "messages", "-after", begun.UTC().Format(time.RFC3339), "-limit", "500")
	if !strings.Contains(out, said.Message.ID) || strings.Contains(out, "A1") {
		t.Errorf("the list since it began: %s", out)
	}
	if out, _ := run(t, w, "messages", "-limit", "1"); !strings.Contains(out, said.Message.ID) {
		t.Errorf("the newest one: %s", out)
	}
	if s := w.Sent(); len(s) != 1 || s[0].Content != "-hé" {
		t.Errorf("sent: %+v", s)
	}
	if c := w.Calls(); len(c) != 3 || c[0].Text != "-hé" || c[0].Args[0] != "send" {
		t.Errorf("calls: %+v", c)
	}
}

func TestTheProgramKeepsTheRulesOfTheRealOne(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*State)
		to     string
		code   int
	}{
		"a name is guessed":         {nil, "ann", 0},
		"nobody":                    {nil, "nobody", 1},
		"a group it does not know":  {nil, "1@g.us", 1},
		"a number it does not know": {nil, "15559998888@s.whatsapp.net", 0},
		"locked":                    {nil, Shut.JID, 1},
		"switch off":                {func(s *State) { s.DND = false }, Ann.JID, 1},
		"not connected":             {func(s *State) { s.Connected = false }, Ann.JID, 1},
		"no daemon":                 {func(s *State) { s.Away = true }, Ann.JID, 1},
		"words nobody has":          {nil, "x --loud", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := NewWacli(t)
			if c.change != nil {
				w.Change(c.change)
			}
			if _, code := w.Run("send", "--to", c.to, "--text", "hi"); code != c.code || len(w.Sent()) != 1-c.code {
				t.Errorf("code %d, sent %v", code, w.Sent())
			}
		})
	}
	w := NewWacli(t)
	if _, code := w.Run("send", "--loud"); code != 2 {
		t.Errorf("an unknown flag: %d", code)
	}
	if out, _ := w.Run("api", "GET", "/chats?filter=unlocked&limit=5"); strings.Contains(string(out), Shut.JID) || !strings.Contains(string(out), Ann.JID) {
		t.Errorf("unlocked chats: %s", out)
	}
	if out, _ := w.Run("api", "GET", "/chats?filter=locked&query=15550009999"); !strings.Contains(string(out), Shut.JID) || strings.Contains(string(out), Ann.JID) {
		t.Errorf("locked chats: %s", out)
	}
}

func TestTheProgramFailsAsItIsTold(t *testing.T) {
	t.Parallel()
	for fault, c := range map[Fault]struct {
		code int
		done bool
	}{
		Fail: {1, false}, NotSent: {1, false}, FailAfter: {1, true}, Garbage: {0, true}, Big: {0, true}, DieBefore: {-1, false}, DieAfter: {-1, true},
	} {
		t.Run(string(fault), func(t *testing.T) {
			t.Parallel()
			w := NewWacli(t)
			w.Next("send", fault)
			if _, code := run(t, w, "send", "--to="+Ann.JID, "--text=x"); code != c.code || (len(w.Sent()) == 1) != c.done {
				t.Errorf("code %d, sent %v", code, w.Sent())
			}
			if _, code := run(t, w, "send", "--to="+Ann.JID, "--text=x"); code != 0 {
				t.Errorf("once more: %d", code)
			}
		})
	}
}

func TestAProgramThatHangsHasAChild(t *testing.T) {
	t.Parallel()
	w := NewWacli(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	w.Next("status", Hang(l.Addr().String()))
	cmd := exec.Command(w.Path, "status")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait() // killed
}
