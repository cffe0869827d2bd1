package whatsapptest

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// Chat is a chat as wacli knows it.
type Chat struct {
	JID     string `json:"jid"`
	Name    string `json:"name"`
	IsGroup bool   `json:"is_group"`
	Locked  bool   `json:"locked"`
}

// Message is a row of wacli's. The list of messages leaves the mentions out, as it does.
type Message struct {
	ID             string    `json:"id"`
	ChatJID        string    `json:"chat_jid"`
	SenderJID      string    `json:"sender_jid"`
	Content        string    `json:"content"`
	Timestamp      time.Time `json:"timestamp"`
	IsFromMe       bool      `json:"is_from_me"`
	MessageType    string    `json:"message_type"`
	MentionsMe     bool      `json:"mentions_me,omitempty"`
	QuotedIsFromMe bool      `json:"quoted_is_from_me,omitempty"`
	MentionCount   int       `json:"mention_count,omitempty"`
	FileName       string    `json:"file_name,omitempty"`
}

// State is what wacli and its daemon are like.
type State struct {
	Away      bool   // the daemon does not run
	Connected bool   // to WhatsApp
	User      string // with the device, as it prints it
	LID       string
	DND       bool // its switch for programs; on lets them send
	Chats     []Chat
}

// Call is a call of the program, as it got it.
type Call struct {
	Args []string
	Env  []string
	Text string // of a message that it sent, "" if it sent none
}

// Fault is what goes wrong with one call of the program.
type Fault string

// The faults. What follows "after" has been done first.
const (
	Fail      Fault = "fail"       // exit code 1, nothing done, nothing printed but for people
	FailAfter Fault = "fail-after" // the daemon's answer was lost: exit code 1
	NotSent   Fault = "not-sent"   // exit code 1, and its JSON says that nothing was sent
	Garbage   Fault = "garbage"    // done, but what it prints is no JSON
	Big       Fault = "big"        // done, and it prints a megabyte on both its outputs first
	DieBefore Fault = "die-before" // killed before it did anything
	DieAfter  Fault = "die-after"  // killed after it
	Leave     Fault = "leave"      // done, and a child of its stays behind, writing to its output
)

// Hang is the fault of a program that never ends, nor does a child it started. Both
// connect to an address first, so that it can be seen when they end.
func Hang(address string) Fault { return Fault("hang " + address) }

// HangAfter is Hang after it was done.
func HangAfter(address string) Fault { return Fault("hang-after " + address) }

// Wacli is a wacli in a directory. Its methods are safe for concurrent use.
type Wacli struct {
	tb   testing.TB
	dir  string
	Path string // of the program
}

// The account, and the device that is wacli's.
const (
	Phone  = "15550001111@s.whatsapp.net"
	Device = "15550001111:16@s.whatsapp.net"
	LID    = "98700000000001@lid"
)

// NewWacli makes one that is well: its daemon runs, is connected and may send. Its chats
// are a person's, a group, and a person's that is locked.
func NewWacli(tb testing.TB) *Wacli {
	tb.Helper()
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	w := &Wacli{tb: tb, dir: tb.TempDir()}
	w.Path = filepath.Join(w.dir, "wacli")
	if runtime.GOOS == "windows" {
		w.Path += ".exe"
	}
	if err := os.Symlink(self, w.Path); err != nil {
		tb.Fatal(err)
	}
	w.Set(State{Connected: true, User: Device, LID: LID, DND: true, Chats: []Chat{Ann, Team, Shut}})
	return w
}

// The chats there are at first.
var (
	Ann  = Chat{JID: "15550002222@s.whatsapp.net", Name: "Ann"}
	Team = Chat{JID: "120363000000000001@g.us", Name: "The team", IsGroup: true}
	Shut = Chat{JID: "15550009999@s.whatsapp.net", Name: "Private", Locked: true}
)

func (w *Wacli) path(name string) string { return filepath.Join(w.dir, name) }

// Set says what it is like from now on.
func (w *Wacli) Set(s State) {
	w.tb.Helper()
	if err := writeWhole(w.path("state.json"), s); err != nil {
		w.tb.Fatal(err)
	}
}

// State is what it is like.
func (w *Wacli) State() State {
	w.tb.Helper()
	s, err := readState(w.dir)
	if err != nil {
		w.tb.Fatal(err)
	}
	return s
}

// Change changes what it is like.
func (w *Wacli) Change(fn func(*State)) {
	w.tb.Helper()
	s := w.State()
	fn(&s)
	w.Set(s)
}

var faults atomic.Int64

// Next lets the next calls of a command go wrong, one a fault, in this order.
func (w *Wacli) Next(command string, all ...Fault) {
	w.tb.Helper()
	for _, f := range all {
		name := fmt.Sprintf("fault-%s-%09d", command, faults.Add(1))
		if err := os.WriteFile(w.path(name), []byte(f), 0o600); err != nil {
			w.tb.Fatal(err)
		}
	}
}

// Store adds messages to its list, as when WhatsApp tells it of them.
func (w *Wacli) Store(all ...Message) {
	w.tb.Helper()
	for _, m := range all {
		if err := appendLine(w.path("messages"), m); err != nil {
			w.tb.Fatal(err)
		}
	}
}

// Messages is its list.
func (w *Wacli) Messages() []Message { return lines[Message](w.tb, w.path("messages")) }

// Calls are the calls of the program so far.
func (w *Wacli) Calls() []Call { return lines[Call](w.tb, w.path("calls")) }

// Sent are the messages that it sent.
func (w *Wacli) Sent() (out []Message) {
	for _, m := range w.Messages() {
		if m.IsFromMe && strings.HasPrefix(m.ID, sentPrefix) {
			out = append(out, m)
		}
	}
	return out
}

const sentPrefix = "3EB0"

// From is a message that a person wrote in a chat.
func From(chat Chat, id, text string, at time.Time) Message {
	m := Message{ID: id, ChatJID: chat.JID, SenderJID: chat.JID, Content: text, Timestamp: at.UTC().Truncate(time.Second), MessageType: "text"}
	if chat.IsGroup {
		m.SenderJID = "15550003333:4@s.whatsapp.net"
	}
	return m
}

// Event is the body of a call about a message, as wacli makes it.
func Event(event string, chat Chat, m Message) []byte {
	type webhook struct {
		ID    int    `json:"id"`
		Scope string `json:"scope"`
	}
	type body struct {
		Chat   Chat      `json:"chat"`
		Msg    Message   `json:"message"`
		Recent []Message `json:"recent_messages"`
		Kinds  []string  `json:"message_kinds"`
		Source string    `json:"source"`
	}
	return marshal(struct {
		Event     string    `json:"event"`
		Generated time.Time `json:"generated_at"`
		Webhook   webhook   `json:"webhook"`
		Payload   body      `json:"payload"`
	}{event, m.Timestamp, webhook{1, "all_unlocked"}, body{chat, m, []Message{m}, []string{"message", "text"}, "whatsapp_event"}})
}

// CallEvent is the body of a call about somebody who rings.
func CallEvent(event, id, peer, name string, video bool) []byte {
	type call struct {
		ID    string `json:"call_id"`
		Peer  string `json:"peer_jid"`
		Name  string `json:"peer_name"`
		Video bool   `json:"video"`
	}
	return marshal(struct {
		Event   string `json:"event"`
		Payload call   `json:"payload"`
	}{event, call{id, peer, name, video}})
}

func marshal(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // of our own types
	}
	return data
}

// Sign is the header that signs a body.
func Sign(secret string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}

// Post makes a signed call of wacli's to a handler and returns its status.
func Post(h http.Handler, secret string, body []byte) int {
	return serve(h, "X-WACLI-Signature", Sign(secret, body), body)
}

// PostTo makes a signed call of wacli's to an address, and like it comes again, up to five
// times in all, until it is answered by a success. It returns the last status.
func PostTo(client *http.Client, url, secret string, body []byte) (status int, err error) {
	for range 5 {
		if status, err = post(client, url, "X-WACLI-Signature", Sign(secret, body), body); err == nil && status < 300 {
			return status, nil
		}
	}
	return status, err
}

func serve(h http.Handler, header, signature string, body []byte) int {
	r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body))
	r.Header.Set(header, signature)
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	return rec.Code
}

func post(client *http.Client, url, header, signature string, body []byte) (int, error) {
	req, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(header, signature)
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, errors.Join(err, resp.Body.Close())
}

func lines[T any](tb testing.TB, path string) []T {
	tb.Helper()
	out, err := readLines[T](path)
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

func readLines[T any](path string) (out []T, err error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	for line := range bytes.Lines(data) {
		var v T
		if err := json.Unmarshal(line, &v); err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, err
}

// appendLine is whole however many processes do it: one write to the end.
func appendLine(path string, v any) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(marshal(v), '\n'))
	return errors.Join(err, f.Close())
}

func writeWhole(path string, v any) error {
	if err := os.WriteFile(path+".new", marshal(v), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func readState(dir string) (s State, err error) {
	data, err := os.ReadFile(filepath.Join(dir, "state.json"))
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(data, &s)
}

func (s State) chat(jid string) (Chat, bool) {
	i := slices.IndexFunc(s.Chats, func(c Chat) bool { return c.JID == jid })
	if i < 0 {
		return Chat{}, false
	}
	return s.Chats[i], true
}
