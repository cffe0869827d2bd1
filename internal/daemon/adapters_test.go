//go:build unix

package daemon

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/wire"
)

// running is an example of an adapter that runs until the test ends.
type running struct {
	io.Writer // its standard input
	io.Reader // its standard output
	dir       string
}

// runExample adds an adapter and runs a program as it. The arguments get the socket, the
// file of the credential and a directory.
func runExample(t *testing.T, o Options, c *wire.Client, command func(args ...string) *exec.Cmd) running {
	t.Helper()
	return startExample(t, o, addAdapter(t, o, c).credential, t.TempDir(), command)
}

func startExample(t *testing.T, o Options, credential, dir string, command func(args ...string) *exec.Cmd) running {
	t.Helper()
	key := filepath.Join(dir, "credential")
	if err := os.WriteFile(key, []byte(credential+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := command(o.Instance.AgentSocket(), key, dir)
	in, out := io.Pipe()
	answers, printed := io.Pipe()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, printed, t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		_, _ = out.Close(), answers.Close()
		_ = cmd.Wait() // it was killed
	})
	return running{out, answers, dir}
}

func pairCode(t *testing.T, c *wire.Client) string {
	t.Helper()
	code, err := c.PairStart(t.Context(), wire.PairStartRequest{Adapter: "tg"})
	if err != nil {
		t.Fatal(err)
	}
	return code.Code
}

// inPython is the example in Python, where a directory is the chat network.
func inPython(t *testing.T) func(args ...string) *exec.Cmd {
	t.Helper()
	python, err := exec.LookPath("python3")
	switch {
	case err != nil && os.Getenv("CI") == "true":
		t.Fatal("python3 is needed in CI: scripts/setup-tests.sh installs it")
	case err != nil:
		t.Skip("there is no python3")
	}
	return func(args ...string) *exec.Cmd {
		return exec.Command(python, append([]string{filepath.Join("..", "..", "examples", "adapter-python", "directory.py")}, args...)...)
	}
}

// What an earlier run of an adapter was handed and did not settle is looked for: it is sent
// if it is there, and in doubt if it is not.
func TestTheAdapterInPythonDoesNotGuess(t *testing.T) {
	t.Parallel()
	python := inPython(t)
	o := options(t, "")
	c, stop := up(t, o)
	a := addAdapter(t, o, c)
	answerAll(t, c)
	a.says("ann", "ann", "help", "1")
	a.says("bob", "bob", "help", "2")
	handed := map[string]string{} // keys by chat
	until(t, "both are handed out", func() bool {
		got, err := a.client.AdapterNext(t.Context(), wire.AdapterNextRequest{Credential: a.credential, WaitS: 5})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range got.Messages {
			handed[m.Chat] = m.Key
		}
		return len(handed) == 2
	})
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	c, _ = up(t, o)
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "out", "ann"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "out", "ann", handed["ann"]+".md"), []byte("I am"), 0o600); err != nil {
		t.Fatal(err)
	}
	startExample(t, o, a.credential, dir, python)
	for chat, want := range map[string]string{"ann": "delivered", "bob": "uncertain"} {
		until(t, chat+" is "+want, func() bool {
			got, err := c.SendState(t.Context(), wire.SendStateRequest{ItemID: handed[chat]})
			return err == nil && got.State == want
		})
	}
	if files, err := filepath.Glob(filepath.Join(dir, "out", "*", "*")); err != nil || len(files) != 1 {
		t.Errorf("it wrote %q: %v", files, err)
	}
}

// Pair, ask, answer.
func TestTheAdapterInPythonWorks(t *testing.T) {
	t.Parallel()
	python := inPython(t)
	o := options(t, "")
	c, _ := up(t, o)
	r := runExample(t, o, c, python)
	write := func(user, name, text string) {
		t.Helper()
		in := filepath.Join(r.dir, "in", user)
		if err := os.MkdirAll(in, 0o700); err != nil {
			t.Fatal(err)
		}
		part := filepath.Join(in, "."+name)
		if err := os.WriteFile(part, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(part, filepath.Join(in, name)); err != nil {
			t.Fatal(err)
		}
	}
	answered := func(user string, n int, part string) { // n is how many answers there are then
		t.Helper()
		until(t, "it answers "+part, func() bool {
			files, err := filepath.Glob(filepath.Join(r.dir, "out", user, "*.md"))
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range files {
				if len(files) != n {
					break
				}
				text, err := os.ReadFile(f)
				if err != nil {
					t.Fatal(err)
				}
				if strings.Contains(string(text), part) {
					return true
				}
			}
			return false
		})
	}
	write("eve", "1", "help") // a stranger
	write("ann", "1", "/pair "+pairCode(t, c))
	answered("ann", 1, "you are the operator")
	write("ann", "1", "remember that the wifi code is 4711") // the same name again is another message
	answered("ann", 2, "May I?")
	write("ann", "2", "yes")
	answered("ann", 4, "Approved")
	write("ann", "3", "what is the wifi code?")
	answered("ann", 5, "4711")
	list, err := c.ConversationsList(t.Context(), wire.ConversationsListRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, conv := range list.Conversations { // what the operator sends goes by the id of the conversation
		if conv.Channel == "adapter:tg" && conv.Messages > 0 {
			if _, err := c.Send(t.Context(), wire.SendRequest{To: conv.ID, Text: "the tea is ready"}); err != nil {
				t.Error(err)
			}
		}
	}
	answered("ann", 6, "the tea is ready")
	write("ann", "4", " ") // nothing: ombud never takes it
	refused := func() bool {
		_, err := os.Stat(filepath.Join(r.dir, "in", "ann", ".4.refused"))
		return err == nil
	}
	until(t, "what is refused is put aside", refused)
	if _, err := os.Stat(filepath.Join(r.dir, "out", "eve")); err == nil {
		t.Error("a stranger was answered")
	}
	if left, err := filepath.Glob(filepath.Join(r.dir, "in", "*", "[^.]*")); err != nil || len(left) != 0 {
		t.Errorf("not taken: %q %v", left, err)
	}
	show, err := c.ChannelShow(t.Context(), wire.ChannelRequest{Name: "adapter:tg"})
	if err != nil || show.Channel.State != "working" || show.Channel.HeardAt == 0 || show.Channel.SaidAt == 0 {
		t.Errorf("%+v %v", show, err)
	}
}

// The example in Go, where lines are the chat network: pair, ask, answer, and a group.
func TestTheAdapterInGoWorks(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "lines")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", program, ".")
	build.Dir = filepath.Join("..", "..", "examples", "adapter-go")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	o := options(t, "")
	c, _ := up(t, o)
	r := runExample(t, o, c, func(args ...string) *exec.Cmd { return exec.Command(program, args[:2]...) })
	heard := make(chan string, 100)
	go func() {
		for lines := bufio.NewScanner(r); lines.Scan(); {
			heard <- lines.Text()
		}
	}()
	write := func(line string) {
		t.Helper()
		if _, err := fmt.Fprintln(r, line); err != nil {
			t.Fatal(err)
		}
	}
	answered := func(chat, part string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		select {
		case got := <-heard: // each is answered before the next is written: nothing else comes
			if !strings.HasPrefix(got, chat+" ") || !strings.Contains(got, part) {
				t.Fatalf("it said %q, not %q in %s", got, part, chat)
			}
		case <-ctx.Done():
			t.Fatalf("it never said %q in %s", part, chat)
		}
	}
	if _, err := c.ChannelSet(t.Context(), wire.ChannelSetRequest{Name: "adapter:tg", Values: []string{"group=#tea:mention"}}); err != nil {
		t.Fatal(err)
	}
	write("eve eve help") // a stranger
	write("ann ann /pair " + pairCode(t, c))
	answered("ann", "you are the operator")
	write("ann ann remember that the wifi code is 4711")
	answered("ann", "May I?")
	write("ann ann yes")
	answered("ann", "Approved")
	answered("ann", "4711")
	write("#tea ann help")        // to nobody
	write("#tea eve @ombud help") // a member nobody allowed
	write("#tea ann @ombud help")
	answered("#tea", "")
	write("ann ann what is the wifi code?")
	answered("ann", "4711")
	show, err := c.ChannelShow(t.Context(), wire.ChannelRequest{Name: "adapter:tg"})
	if err != nil || show.Channel.State != "working" || len(show.Channel.Groups) != 1 {
		t.Errorf("%+v %v", show, err)
	}
	until(t, "all is settled", func() bool {
		show, err := c.ChannelShow(t.Context(), wire.ChannelRequest{Name: "adapter:tg"})
		return err == nil && show.Channel.Waiting == 0
	})
	if res, err := c.DLQList(t.Context(), wire.DLQListRequest{}); err != nil || len(res.Letters) != 0 {
		t.Errorf("in doubt or failed are %+v: %v", res, err)
	}
}
