package whatsapp

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"

	"github.com/ombud-run/ombud/internal/channel"
	"github.com/ombud-run/ombud/internal/fault"
)

// status is what `wacli status` says. What it does not say is taken to be well: an older
// or newer wacli says less or more.
type status struct {
	away         bool // its daemon does not answer
	disconnected bool
	disarmed     bool // "do not disturb" is wacli's word for what lets programs send: off, nothing goes out or comes in
	told         bool // it said something that we know
	user, lid    string
}

// parseStatus reads the lines, or the JSON of the daemon's own interface.
func parseStatus(out []byte) status {
	if out = bytes.TrimSpace(out); bytes.HasPrefix(out, []byte("{")) {
		var j struct {
			Connected *bool  `json:"connected"`
			User      string `json:"user_jid"`
			LID       string `json:"user_lid"`
			DND       *bool  `json:"dnd_mode"`
		}
		if json.Unmarshal(out, &j) != nil {
			return status{}
		}
		is := func(b *bool) bool { return b == nil || *b }
		return status{disconnected: !is(j.Connected), disarmed: !is(j.DND), told: j.Connected != nil || j.User != "", user: j.User, lid: j.LID}
	}
	var s status
	for l := range strings.Lines(string(out)) {
		key, value, ok := strings.Cut(l, ":") // an id has a colon too, behind the first
		value = strings.TrimSpace(value)
		if !ok {
			continue
		}
		switch strings.ToLower(strings.TrimSpace(key)) {
		case "daemon":
			s.away, s.told = strings.HasPrefix(value, "not"), true
		case "connected":
			s.disconnected, s.told = value == "false", true
		case "user", "user_jid":
			s.user, s.told = value, true
		case "lid", "user_lid":
			s.lid = value
		case "dnd", "dnd_mode":
			s.disarmed = value == "false" || value == "off"
		}
	}
	return s
}

// trouble is why messages cannot go by wacli now: Unavailable, or Denied if it was logged
// out, which does not mend itself.
func (s status) trouble() error {
	unavailable := func(what, hint string) error { return fault.New(fault.Unavailable, "%s", what).WithHint("%s", hint) }
	switch {
	case s.away:
		return unavailable("wacli's daemon does not answer", "start it: wacli daemon")
	case !s.told:
		return unavailable("wacli says nothing of its state that can be understood", "see what `wacli status` prints")
	case s.disconnected && s.user == "":
		return fault.New(fault.Denied, "wacli is logged out of WhatsApp").WithHint("log in again: wacli login")
	case s.disconnected:
		return unavailable("wacli is not connected to WhatsApp", "wacli connects again by itself; see wacli status")
	case s.disarmed:
		return unavailable("wacli's switch for programs is off: it sends nothing and tells nothing", "turn it on: wacli dnd on")
	case !talks(normal(s.user)):
		return unavailable("wacli does not say which account it is logged in to", "see what `wacli status` prints")
	}
	return nil
}

// health asks wacli whether messages can go, and who we are.
func (a *wacli) health(ctx context.Context) (channel.Me, error) {
	e, err := a.exec(ctx, maxSaid, "status")
	if err != nil {
		return channel.Me{}, err
	}
	if e.killed != nil {
		return channel.Me{}, fault.New(fault.Unavailable, "ask wacli for its state: %w", e.killed)
	}
	if e.code != 0 {
		return channel.Me{}, fault.New(fault.Unavailable, "wacli status ended with code %d", e.code).WithHint("see what `wacli status` says")
	}
	s := parseStatus(e.out)
	if err := s.trouble(); err != nil {
		return channel.Me{}, err
	}
	id := normal(s.user)
	me := channel.Me{ID: id, Name: "+" + user(id), IDs: []string{id}}
	if lid := a.lidOf(ctx, s); lid != "" {
		me.IDs = append(me.IDs, lid)
	}
	a.me.Store(&me)
	return me, nil
}

// lidOf is the second id of the account, by which groups mention it. Not every version
// prints it, nor knows it.
func (a *wacli) lidOf(ctx context.Context, s status) string {
	a.mu.Lock()
	known, asked := a.lid, a.lidAsk
	a.mu.Unlock()
	lid := s.lid
	if known == "" && lid == "" && !asked {
		e, err := a.exec(ctx, maxSaid, "api", "GET", "/status")
		if asked = err == nil && e.code == 0 && e.killed == nil; asked {
			lid = parseStatus(e.out).lid
		}
	}
	if lid = normal(lid); !strings.HasSuffix(lid, "@"+lidServer) || !talks(lid) {
		lid = known
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lid, a.lidAsk = lid, asked
	return lid
}
