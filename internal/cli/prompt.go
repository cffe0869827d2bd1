package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/term"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/vault"
)

// terminal is the person's: standard input, or what controls the process where that
// is a pipe. close gives it back.
func (a *app) terminal() (f *os.File, closeIt func(), ok bool) {
	if in, ok := a.stdin.(*os.File); ok && isTerminal(in) {
		return in, func() {}, true
	}
	tty, err := openTTY()
	if err != nil {
		return nil, nil, false
	}
	return tty, func() { _ = tty.Close() }, true
}

func (a *app) hasTerminal() bool {
	_, done, ok := a.terminal()
	if ok {
		done()
	}
	return ok
}

// typed asks for one line that is not shown. The caller wipes it.
func (a *app) typed(ctx context.Context, question string) ([]byte, error) {
	tty, done, ok := a.terminal()
	if !ok {
		return nil, fault.New(fault.Permission, "there is no terminal to ask in").WithHint("run it in one, or give it on standard input with --stdin")
	}
	defer done()
	before, err := term.GetState(int(tty.Fd()))
	if err != nil {
		return nil, fault.New(fault.Unavailable, "ask in the terminal: %w", err)
	}
	show := a.stderr
	if !isTerminal(a.stderr) {
		show = tty
	}
	fmt.Fprint(show, question+" ")
	type answer struct {
		line []byte
		err  error
	}
	got := make(chan answer, 1)
	go func() { // ends with the line, or with the process
		line, err := term.ReadPassword(int(tty.Fd()))
		got <- answer{line, err}
	}()
	select {
	case g := <-got:
		fmt.Fprintln(show)
		if errors.Is(g.err, io.EOF) {
			return nil, fault.New(fault.Cancelled, "nothing was typed")
		}
		if g.err != nil {
			return nil, fault.New(fault.Unavailable, "read from the terminal: %w", g.err)
		}
		return g.line, nil
	case <-ctx.Done():
		_ = term.Restore(int(tty.Fd()), before) // the shell does it too
		fmt.Fprintln(show)
		return nil, fault.New(fault.Cancelled, "nothing was typed: %w", context.Cause(ctx))
	}
}

// askPassphrase asks for what opens the vault; a new one twice.
func (a *app) askPassphrase(ctx context.Context, q vault.Question) (*vault.Secret, error) {
	if q.New {
		return a.askNewPassphrase(ctx)
	}
	question := "Passphrase of the vault of ombud (instance " + a.where.Name + "):"
	if q.Again {
		question = "That is not it. " + question
	}
	line, err := a.typed(ctx, question)
	if err != nil {
		return nil, err
	}
	return vault.NewPassphrase("typed in the terminal", line)
}

func (a *app) askNewPassphrase(ctx context.Context) (*vault.Secret, error) {
	line, err := a.typed(ctx, fmt.Sprintf("New passphrase for the vault of ombud (instance %s), at least %d characters:", a.where.Name, vault.MinPassphrase))
	if err != nil {
		return nil, err
	}
	secret, err := vault.NewPassphrase("typed in the terminal", line)
	if err != nil {
		return nil, err
	}
	if err := secret.Strong(); err != nil {
		secret.Wipe()
		return nil, err
	}
	again, err := a.typed(ctx, "The same again:")
	if err != nil {
		secret.Wipe()
		return nil, err
	}
	second, err := vault.NewPassphrase("typed in the terminal", again)
	if err != nil || !second.Equal(secret) {
		secret.Wipe()
		second.Wipe()
		return nil, fault.New(fault.Invalid, "the two are not the same").WithHint("nothing was changed; try again")
	}
	second.Wipe()
	return secret, nil
}

// stdinLines reads so many lines of standard input, for scripts.
func (a *app) stdinLines(n int) (lines [][]byte, err error) {
	raw, err := io.ReadAll(io.LimitReader(a.stdin, 8<<10))
	defer clear(raw)
	if err != nil {
		return nil, fault.New(fault.Unavailable, "read standard input: %w", err)
	}
	for line := range bytes.Lines(raw) {
		lines = append(lines, bytes.Clone(bytes.TrimRight(line, "\r\n")))
	}
	if len(lines) != n {
		return nil, fault.New(fault.Usage, "standard input has %s, not %d", plural(int64(len(lines)), "line"), n)
	}
	return lines, nil
}
