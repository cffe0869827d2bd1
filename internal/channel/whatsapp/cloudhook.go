package whatsapp

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/channel"
	"github.com/ombud-run/ombud/internal/fault"
)

const maxCloudHook = 3 << 20 // bytes: what Meta says its calls have at most

// Hook implements channel.Hooked.
func (c *cloud) Hook(in channel.Intake) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Method {
		case http.MethodGet:
			c.subscribe(w, r)
		case http.MethodPost:
			c.serve(w, r, in)
		default:
			w.Header().Set("Allow", "GET, POST")
			http.Error(w, http.StatusText(http.StatusMethodNotAllowed), http.StatusMethodNotAllowed)
		}
	})
}

// subscribe answers Meta's question whether the address is ours.
func (c *cloud) subscribe(w http.ResponseWriter, r *http.Request) {
	want, err := c.secret(r.Context(), partVerify)
	q := r.URL.Query()
	given, challenge := sha256.Sum256([]byte(q.Get("hub.verify_token"))), q.Get("hub.challenge")
	sum := sha256.Sum256([]byte(want))
	same := subtle.ConstantTimeCompare(given[:], sum[:]) == 1
	if err != nil || want == "" || !same || q.Get("hub.mode") != "subscribe" || challenge == "" || len(challenge) > 256 {
		http.Error(w, http.StatusText(http.StatusForbidden), http.StatusForbidden)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = io.WriteString(w, challenge) //nolint:gosec // plain text, to who proved to be Meta; if it has gone, it asks again
}

func (c *cloud) serve(w http.ResponseWriter, r *http.Request, in channel.Intake) {
	body, err := readSigned(w, r, "X-Hub-Signature-256", maxCloudHook, func() ([]string, error) {
		s, err := c.secret(r.Context(), partApp)
		if fault.Is(err, fault.NotFound) {
			return nil, nil
		}
		return []string{s}, err
	})
	if err != nil {
		c.log.WarnContext(r.Context(), "a call to the WhatsApp hook is refused", "error", err)
		refuse(w, err)
		return
	}
	n, err := decodeNotice(body)
	if err != nil {
		c.log.WarnContext(r.Context(), "a call to the WhatsApp hook is not understood", "error", err)
		http.Error(w, http.StatusText(http.StatusBadRequest), http.StatusBadRequest)
		return
	}
	if err := c.take(r.Context(), in, n); err != nil {
		c.log.WarnContext(r.Context(), "a call to the WhatsApp hook is not taken in whole", "error", err)
		http.Error(w, http.StatusText(http.StatusServiceUnavailable), http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusOK)
}

// take takes in all that a call says. What was taken before an error is the same when the
// call comes again.
func (c *cloud) take(ctx context.Context, in channel.Intake, n notice) error {
	var unsettled error // a report that comes too early keeps back no message
	for _, entry := range n.Entry {
		for _, change := range entry.Changes {
			v := change.Value
			if v.Metadata.PhoneNumberID != c.phone || change.Field != "messages" && change.Field != "" {
				continue // another number of the same business, or nothing said
			}
			for _, m := range v.Messages {
				if r, ok := m.received(v, time.Now().UTC()); ok {
					if err := in.Take(ctx, r); err != nil {
						return err
					}
					c.last.put(r.Chat, r.ID)
				}
			}
			for _, s := range v.Statuses {
				unsettled = errors.Join(unsettled, c.report(ctx, in, s))
			}
		}
	}
	return unsettled
}

// report takes in what Meta says became of a message of ours.
func (c *cloud) report(ctx context.Context, in channel.Intake, s statusRow) error {
	switch s.Status {
	case "sent", "delivered", "read", "played":
		if s.Key == "" || len(s.Key) > maxKey || s.ID == "" || len(s.ID) > maxID {
			return nil
		}
		return in.Arrived(ctx, s.Key, s.ID)
	case "failed":
		// It was accepted before, so the outbox has it as sent.
		var e graphError
		if len(s.Errors) > 0 {
			e = s.Errors[0]
		}
		reason := fmt.Sprintf("Meta says, code %d: %s", e.Code, line(cmp.Or(e.Data.Details, e.Message, "no reason")))
		c.log.WarnContext(ctx, "Meta did not deliver a WhatsApp message", "ref", line(s.ID), "reason", reason)
		if s.Key == "" || len(s.Key) > maxKey {
			return nil
		}
		return in.Lost(ctx, s.Key, s.ID, reason)
	}
	return nil
}

// notice is the body of a call of Meta's. All of it may be missing.
type notice struct {
	Entry []struct {
		Changes []struct {
			Field string `json:"field"`
			Value value  `json:"value"`
		} `json:"changes"`
	} `json:"entry"`
}

type value struct {
	Metadata struct {
		Display       string `json:"display_phone_number"`
		PhoneNumberID string `json:"phone_number_id"`
	} `json:"metadata"`
	Contacts []struct {
		WaID    string `json:"wa_id"`
		Profile struct {
			Name string `json:"name"`
		} `json:"profile"`
	} `json:"contacts"`
	Messages channel.Rows[cloudRow]  `json:"messages"`
	Statuses channel.Rows[statusRow] `json:"statuses"`
}

type statusRow struct {
	ID     string       `json:"id"`
	Status string       `json:"status"`
	Key    string       `json:"biz_opaque_callback_data"`
	Errors []graphError `json:"errors"`
}

type media struct {
	Caption  string `json:"caption"`
	Filename string `json:"filename"`
	Voice    bool   `json:"voice"`
}

// cloudRow is a message.
type cloudRow struct {
	ID        string `json:"id"`
	From      string `json:"from"`
	Timestamp stamp  `json:"timestamp"`
	Type      string `json:"type"`
	Text      struct {
		Body string `json:"body"`
	} `json:"text"`
	Context struct {
		From string `json:"from"`
		ID   string `json:"id"`
	} `json:"context"`
	Image       *media `json:"image"`
	Video       *media `json:"video"`
	Audio       *media `json:"audio"`
	Document    *media `json:"document"`
	Sticker     *media `json:"sticker"`
	Interactive struct {
		Button reply `json:"button_reply"`
		List   reply `json:"list_reply"`
	} `json:"interactive"`
	Button struct {
		Payload string `json:"payload"`
		Text    string `json:"text"`
	} `json:"button"`
	Reaction struct {
		Emoji string `json:"emoji"`
	} `json:"reaction"`
	Location struct {
		Name string `json:"name"`
	} `json:"location"`
}

// UnmarshalJSON reads a row. Of one whose content is of another shape than is known there is
// left that somebody wrote.
func (r *cloudRow) UnmarshalJSON(data []byte) error {
	type plain cloudRow
	if json.Unmarshal(data, (*plain)(r)) == nil {
		return nil
	}
	var head struct {
		ID        string `json:"id"`
		From      string `json:"from"`
		Timestamp stamp  `json:"timestamp"`
	}
	*r = cloudRow{}
	err := json.Unmarshal(data, &head)
	r.ID, r.From, r.Timestamp = head.ID, head.From, head.Timestamp
	return err
}

// decodeNotice reads the body of a call of Meta's. Invalid if it is no JSON object.
func decodeNotice(body []byte) (notice, error) {
	var n notice
	if err := json.Unmarshal(body, &n); err != nil {
		return notice{}, fault.New(fault.Invalid, "the body is not a notice of Meta's: %w", err)
	}
	return n, nil
}

// received is a row as a message. It is false for what has no id or nobody who wrote it.
func (r cloudRow) received(v value, now time.Time) (channel.Received, bool) {
	from := strings.TrimPrefix(strings.TrimSpace(r.From), "+")
	if r.ID == "" || len(r.ID) > maxID || line(r.ID) != r.ID || from == "" || len(from) > maxJID || line(from) != from {
		return channel.Received{}, false
	}
	m := channel.Received{ID: r.ID, Chat: from, Sender: from, At: r.Timestamp.Time}
	for _, c := range v.Contacts {
		if strings.TrimPrefix(c.WaID, "+") == from || len(v.Contacts) == 1 {
			m.SenderName = line(c.Profile.Name)
			m.Title = m.SenderName
		}
	}
	ours := digits(v.Metadata.Display)
	m.QuotesMe = ours != "" && digits(r.Context.From) == ours
	m.Own = ours != "" && digits(from) == ours
	if m.At.IsZero() || m.At.After(now) {
		m.At = now
	}
	r.say(&m)
	m.Text = clean(m.Text)
	m.Command = m.Press == nil && command.MatchString(m.Text)
	return m, strings.TrimSpace(m.Text) != ""
}

// say sets what a message says, by its type. Those that hold no words to answer are
// marked as a program's, so that they are events and start no turn.
func (r cloudRow) say(m *channel.Received) {
	switch r.Type {
	case "text":
		m.Text = r.Text.Body
	case "image", "video", "audio", "document", "sticker":
		kind := r.Type
		f := map[string]*media{"image": r.Image, "video": r.Video, "audio": r.Audio, "document": r.Document, "sticker": r.Sticker}[kind]
		if f == nil {
			f = &media{}
		}
		m.Text = attach(clean(f.Caption), kind, f.Filename)
	case "interactive":
		answer := r.Interactive.Button
		if answer.ID == "" {
			answer = r.Interactive.List
		}
		r.press(m, answer.ID, answer.Title)
	case "button":
		r.press(m, r.Button.Payload, r.Button.Text)
	case "reaction":
		m.Text, m.Bot = "[reaction: "+cmp.Or(line(r.Reaction.Emoji), "taken back")+"]", true
	case "location":
		m.Text = "[location: " + line(r.Location.Name) + "]"
	case "system", "request_welcome", "ephemeral":
		m.Text, m.Bot = "["+r.Type+"]", true
	default:
		m.Text = "[" + cmp.Or(line(r.Type), "message") + " that cannot be shown here]"
	}
}

// press is a press of a button of ours, or else what a button said.
func (r cloudRow) press(m *channel.Received, id, title string) {
	m.Text = cmp.Or(line(title), line(id))
	if approval, yes, ok := parsePress(id); ok {
		m.Press = &channel.Press{Approval: approval, Yes: yes, Ref: fault.Cut(line(r.Context.ID), maxID)}
	}
}
