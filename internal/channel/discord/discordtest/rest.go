package discordtest

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// nonceFor is how long a nonce is remembered: "a few minutes".
const nonceFor = 3 * time.Minute

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) //nolint:errchkjson // whoever asked may be gone
}

type problem struct {
	Message string `json:"message"`
	Code    int    `json:"code"`
}

func refuse(w http.ResponseWriter, status, code int, text string) {
	answer(w, status, problem{text, code})
}

func invalid(w http.ResponseWriter, text string) {
	refuse(w, 400, 50035, "Invalid Form Body: "+text)
}

type bucket struct {
	used  int
	reset time.Time
}

func tooMany(w http.ResponseWriter, wait time.Duration, global bool) {
	h := w.Header()
	h.Set("Retry-After", strconv.Itoa(int(wait/time.Second)+1))
	h.Set("X-RateLimit-Scope", map[bool]string{true: "global", false: "user"}[global])
	if global {
		h.Set("X-RateLimit-Global", "true")
	}
	answer(w, 429, struct {
		Message    string  `json:"message"`
		RetryAfter float64 `json:"retry_after"`
		Global     bool    `json:"global"`
	}{"You are being rate limited.", wait.Seconds(), global})
}

// take counts a call of a route and reports whether it may go on.
func (s *Server) take(w http.ResponseWriter, route string) bool {
	s.mu.Lock()
	now := time.Now()
	b := s.buckets[route]
	if b == nil || now.After(b.reset) {
		b = &bucket{reset: now.Add(s.window)}
		s.buckets[route] = b
	}
	b.used++
	left, wait, limit := max(0, s.limit-b.used), time.Until(b.reset), s.limit
	over := b.used > s.limit
	s.mu.Unlock()
	h := w.Header()
	h.Set("X-RateLimit-Limit", strconv.Itoa(limit))
	h.Set("X-RateLimit-Remaining", strconv.Itoa(left))
	h.Set("X-RateLimit-Reset-After", strconv.FormatFloat(wait.Seconds(), 'f', 3, 64))
	h.Set("X-RateLimit-Bucket", "80c17d2f203122d936070c88c8d10f33")
	if over {
		tooMany(w, wait, false)
	}
	return !over
}

func (s *Server) me(w http.ResponseWriter, _ *http.Request) { answer(w, 200, s.Bot) }

func (s *Server) gatewayURL(w http.ResponseWriter, _ *http.Request) {
	type limit struct {
		Total          int   `json:"total"`
		Remaining      int   `json:"remaining"`
		ResetAfter     int64 `json:"reset_after"`
		MaxConcurrency int   `json:"max_concurrency"`
	}
	s.mu.Lock()
	l := limit{1000, s.remaining, s.reset.Milliseconds(), 1}
	s.mu.Unlock()
	answer(w, 200, struct {
		URL    string `json:"url"`
		Shards int    `json:"shards"`
		Limit  limit  `json:"session_start_limit"`
	}{s.ws("/gw"), 1, l})
}

func (s *Server) ws(path string) string {
	return "ws" + strings.TrimPrefix(s.http.URL, "http") + path
}

// open finds the channel of a call; without it the call was answered.
func (s *Server) open(w http.ResponseWriter, r *http.Request) (Channel, bool) {
	s.mu.Lock()
	c, ok := s.channels[r.PathValue("id")]
	code := s.denied[r.PathValue("id")]
	s.mu.Unlock()
	switch {
	case !ok:
		refuse(w, 404, 10003, "Unknown Channel")
	case code == 50007 && r.Method == http.MethodGet:
		return c, true
	case code == 50007:
		refuse(w, 403, code, "Cannot send messages to this user")
	case code != 0:
		refuse(w, 403, code, "Missing Access")
	default:
		return c, true
	}
	return c, false
}

func (s *Server) channel(w http.ResponseWriter, r *http.Request) {
	if c, ok := s.open(w, r); ok {
		answer(w, 200, c)
	}
}

// history answers the newest first; with after, those next to it.
func (s *Server) history(w http.ResponseWriter, r *http.Request) {
	c, ok := s.open(w, r)
	if !ok {
		return
	}
	q := r.URL.Query()
	limit, err := strconv.Atoi(q.Get("limit"))
	if q.Get("limit") == "" {
		limit, err = 50, nil
	}
	if err != nil || limit < 1 || limit > 100 {
		invalid(w, "limit: int value should be between 1 and 100")
		return
	}
	id := func(name string) int64 { n, _ := strconv.ParseInt(q.Get(name), 10, 64); return n }
	after, before := id("after"), id("before")
	s.mu.Lock()
	out := []Message{}
	for _, m := range s.messages[c.ID] {
		n, _ := strconv.ParseInt(m.ID, 10, 64)
		if n <= after || before > 0 && n >= before {
			continue
		}
		if !s.content {
			m = s.hidden(m)
		}
		m.Nonce = "" // it is told when a message is made, and not kept
		out = append(out, m)
	}
	s.mu.Unlock()
	if after > 0 {
		out = out[:min(limit, len(out))]
	} else {
		out = out[max(0, len(out)-limit):]
	}
	slices.Reverse(out)
	answer(w, 200, out)
}

func (s *Server) body(w http.ResponseWriter, r *http.Request) (p post, ok bool) {
	data, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil || json.Unmarshal(data, &p) != nil || r.Header.Get("Content-Type") != "application/json" {
		refuse(w, 400, 50109, "The request body contains invalid JSON.")
		return p, false
	}
	if problem := p.check(); problem != "" {
		invalid(w, problem)
		return p, false
	}
	return p, true
}

func (p *post) check() string {
	if p.Content != nil && utf8.RuneCountInString(*p.Content) > 2000 {
		return "content: Must be 2000 or fewer in length."
	}
	if utf8.RuneCountInString(p.Nonce) > 25 {
		return "nonce: Must be 25 or fewer in length."
	}
	if p.Components == nil {
		return ""
	}
	if len(*p.Components) > 5 {
		return "components: Must be 5 or fewer in length."
	}
	ids := map[string]bool{}
	for _, row := range *p.Components {
		if row.Type != 1 || len(row.Components) < 1 || len(row.Components) > 5 {
			return "components: a row has 1 to 5 components."
		}
		for _, b := range row.Components {
			if b.Type != 2 || b.Style < 1 || b.Style > 4 || b.CustomID == "" || len(b.CustomID) > 100 || ids[b.CustomID] || b.Label == "" || utf8.RuneCountInString(b.Label) > 80 {
				return "components: custom_id, label or style of a button."
			}
			ids[b.CustomID] = true
		}
	}
	return ""
}

func (s *Server) create(w http.ResponseWriter, r *http.Request) {
	c, ok := s.open(w, r)
	if !ok || !s.take(w, "POST "+c.ID) {
		return
	}
	p, ok := s.body(w, r)
	if !ok {
		return
	}
	if p.Content == nil || strings.TrimSpace(*p.Content) == "" {
		refuse(w, 400, 50006, "Cannot send an empty message")
		return
	}
	var out Message
	problem := ""
	s.update(func() { out, problem = s.post(c, p) })
	if problem != "" {
		invalid(w, problem)
		return
	}
	answer(w, 200, out)
}

func (s *Server) post(c Channel, p post) (Message, string) {
	key := c.ID + "/" + p.Nonce
	if first, ok := s.nonces[key]; ok && p.Nonce != "" && p.EnforceNonce {
		if at, _ := time.Parse(time.RFC3339, first.Timestamp); time.Since(at) < nonceFor {
			return first, ""
		}
	}
	m := Message{ChannelID: c.ID, Author: s.Bot, Content: strings.TrimSpace(*p.Content), Nonce: p.Nonce, Flags: p.Flags, TTS: p.TTS}
	if p.Components != nil {
		m.Components = *p.Components
	}
	if ref := p.Reference; ref != nil {
		i := slices.IndexFunc(s.messages[c.ID], func(o Message) bool { return o.ID == ref.MessageID })
		switch {
		case i >= 0:
			m.Type, m.MessageReference = 19, &Reference{MessageID: ref.MessageID, ChannelID: c.ID, GuildID: c.GuildID}
			m.ReferencedMessage = new(s.messages[c.ID][i])
		case ref.FailIfNotExists == nil || *ref.FailIfNotExists:
			return m, "message_reference: Unknown message"
		}
	}
	if p.AllowedMentions == nil {
		m.MentionEveryone = strings.Contains(m.Content, "@everyone")
	}
	m = s.fill(m)
	s.keep(m)
	s.sent = append(s.sent, m)
	s.nonces[key] = m
	s.tell(m)
	return m, ""
}

func (s *Server) edit(w http.ResponseWriter, r *http.Request) {
	c, ok := s.open(w, r)
	if !ok {
		return
	}
	p, ok := s.body(w, r)
	if !ok {
		return
	}
	var out Message
	status, code, text := 404, 10008, "Unknown Message"
	s.update(func() {
		i := slices.IndexFunc(s.messages[c.ID], func(o Message) bool { return o.ID == r.PathValue("message") })
		if i < 0 {
			return
		}
		m := &s.messages[c.ID][i]
		if m.Author.ID != s.Bot.ID {
			status, code, text = 403, 50005, "Cannot edit a message authored by another user"
			return
		}
		if p.Content != nil {
			m.Content = strings.TrimSpace(*p.Content)
		}
		if p.Components != nil {
			m.Components = *p.Components
		}
		m.EditedTimestamp = new(time.Now().UTC().Format(time.RFC3339))
		out, status = *m, 200
		if j := slices.IndexFunc(s.sent, func(o Message) bool { return o.ID == m.ID }); j >= 0 {
			s.sent[j] = out
		}
		s.dispatch("MESSAGE_UPDATE", out)
	})
	if status != 200 {
		refuse(w, status, code, text)
		return
	}
	answer(w, 200, out)
}

func (s *Server) typing(w http.ResponseWriter, r *http.Request) {
	if c, ok := s.open(w, r); ok {
		s.update(func() { s.typed = append(s.typed, c.ID) })
		w.WriteHeader(http.StatusNoContent)
	}
}

func (s *Server) callback(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Type int `json:"type"`
	}
	if json.NewDecoder(io.LimitReader(r.Body, 1<<20)).Decode(&body) != nil || body.Type < 1 || body.Type > 12 {
		invalid(w, "type")
		return
	}
	status, code := 204, 0
	s.update(func() {
		p := s.press[r.PathValue("id")]
		switch {
		case p == nil || p.token != r.PathValue("token") || time.Since(p.at) > 3*time.Second:
			status, code = 404, 10062
		case p.answer != 0:
			status, code = 400, 40060
		default:
			p.answer = body.Type
		}
	})
	if status != 204 {
		refuse(w, status, code, map[int]string{10062: "Unknown interaction", 40060: "Interaction has already been acknowledged."}[code])
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
