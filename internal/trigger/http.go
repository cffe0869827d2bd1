package trigger

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
)

// answer is what a caller is told.
type answer struct {
	Status string `json:"status"` // accepted or duplicate
	ID     string `json:"id"`
}

// refusedCall is why a call is refused: status and text are told, why is not.
type refusedCall struct {
	status int
	class  fault.Class
	text   string
	why    string        // "": text
	after  time.Duration // when to try again
}

func (e *refusedCall) Error() string { return e.text }

func refuse(status int, class fault.Class, text string) *refusedCall {
	return &refusedCall{status: status, class: class, text: text}
}

// later asks the caller to try again.
func later(text string, after time.Duration) *refusedCall {
	return &refusedCall{status: http.StatusServiceUnavailable, class: fault.Unavailable, text: text, after: after}
}

const (
	busyFor = 5 * time.Second // when to try again if the store cannot be written
	heldFor = time.Minute
)

// ServeHTTP takes calls of webhooks, below HooksPath.
func (t *Triggers) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, HooksPath)
	out, err := t.receive(rw, r, path)
	if err == nil {
		status := "accepted"
		switch {
		case out.challenge != "":
			rw.Header().Set("Content-Type", "text/plain; charset=utf-8")
			_, _ = io.WriteString(rw, out.challenge) // the caller is gone: nothing is to be done
			return
		case out.Duplicate:
			status = "duplicate"
		}
		reply(rw, http.StatusOK, answer{status, out.ID})
		return
	}
	no, ours := errors.AsType[*refusedCall](err)
	if !ours {
		no = t.failed(err)
	}
	if no.after > 0 {
		rw.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(no.after.Seconds()))))
	}
	reply(rw, no.status, struct {
		Error problem `json:"error"`
	}{problem{no.class, no.text}})
}

// problem is an error as it is told.
type problem struct {
	Class   fault.Class `json:"class"`
	Message string      `json:"message"`
}

func reply(rw http.ResponseWriter, status int, what any) {
	raw, err := json.Marshal(what)
	if err != nil {
		status, raw = http.StatusInternalServerError, []byte(`{"error":{"class":"internal"}}`)
	}
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(status)
	_, _ = rw.Write(append(raw, '\n')) // the caller is gone: nothing is to be done
}

// failed is what is told of an error of ours. Whoever sent it tries again later.
func (t *Triggers) failed(err error) *refusedCall {
	switch {
	case fault.Is(err, fault.NotFound):
		return refuse(http.StatusNotFound, fault.NotFound, errNoRoute.Error())
	case errors.Is(err, errReplay):
		return refuse(http.StatusConflict, fault.Conflict, err.Error())
	}
	t.slog.Error("a webhook could not be taken", "error", err)
	return later("it cannot be kept now", busyFor)
}

// received is what became of a call: it was accepted, or is Slack's question whether
// somebody is there.
type received struct {
	Accepted
	challenge string
}

func (t *Triggers) receive(rw http.ResponseWriter, r *http.Request, path string) (out received, err error) {
	if !paths.MatchString(path) || len(path) > 128 {
		return out, errNoRoute
	}
	var w Webhook
	err = t.db.Read(r.Context(), func(ctx context.Context, q db.Q) (err error) {
		_, w, err = t.routeOf(ctx, q, path)
		return err
	})
	if err != nil {
		return out, err
	}
	out, err = t.take(rw, r, w)
	if no, ours := errors.AsType[*refusedCall](err); ours {
		why := no.why
		if why == "" {
			why = no.text
		}
		t.refusals.add(path, t.opt.Now().UnixMicro(), why)
	} else if errors.Is(err, errReplay) {
		t.refusals.add(path, t.opt.Now().UnixMicro(), err.Error())
	}
	return out, err
}

func (t *Triggers) take(rw http.ResponseWriter, r *http.Request, w Webhook) (out received, err error) {
	if r.Method != http.MethodPost {
		rw.Header().Set("Allow", http.MethodPost)
		return out, refuse(http.StatusMethodNotAllowed, fault.Invalid, "only POST")
	}
	if e := r.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return out, refuse(http.StatusUnsupportedMediaType, fault.Invalid, "a body is taken as it is, not compressed")
	}
	if t.opt.Held() != nil {
		return out, later("nothing is taken now", heldFor)
	}
	if r.ContentLength > maxBody {
		return out, tooLarge(rw)
	}
	in := &incoming{from: http.MaxBytesReader(rw, r.Body, maxBody), room: &t.room, path: w.Path}
	defer in.leave()
	body, err := io.ReadAll(in)
	if errors.Is(err, errFull) {
		rw.Header().Set("Connection", "close") // the rest is not read
		return out, later(errFull.Error(), busyFor)
	}
	if err != nil {
		if _, over := errors.AsType[*http.MaxBytesError](err); over {
			return out, tooLarge(rw)
		}
		return out, refuse(http.StatusBadRequest, fault.Invalid, "the body did not come whole")
	}
	who, err := t.prove(r.Context(), w, r.Header, body)
	if err != nil {
		return out, err
	}
	if wait, ok := t.rates.take(w.Path, t.opt.PerMinute, t.opt.Now()); !ok {
		return out, &refusedCall{status: http.StatusTooManyRequests, class: fault.Unavailable, text: "too many calls", after: max(wait, time.Second)}
	}
	if w.Scheme == Slack {
		if out.challenge = challenge(body); out.challenge != "" {
			return out, nil
		}
	}
	// A caller that hangs up has sent it all the same.
	out.Accepted, err = t.accept(context.WithoutCancel(r.Context()), w, who, r.Header, body)
	return out, err
}

func tooLarge(rw http.ResponseWriter) error {
	rw.Header().Set("Connection", "close") // the rest is not read
	return refuse(http.StatusRequestEntityTooLarge, fault.Invalid, "a body has at most "+strconv.Itoa(maxBody)+" bytes here")
}

// prove proves who sent a call.
func (t *Triggers) prove(ctx context.Context, w Webhook, h http.Header, body []byte) (identity, error) {
	var keys [][]byte
	for _, name := range w.Secrets {
		v, err := t.opt.Secrets.Resolve(ctx, name)
		if fault.Is(err, fault.NotFound) {
			continue // one that is still to come, or was taken away
		}
		if err != nil {
			return identity{}, err
		}
		key, err := w.keyOf(v.Reveal())
		if err != nil {
			t.slog.Error("a secret of a webhook cannot be used", "route", w.Path, "secret", name, "error", err)
			continue
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 && w.Scheme != Open {
		no := later("nothing is taken now", heldFor)
		no.why = "none of its secrets is there, or can be used"
		return identity{}, no
	}
	who, err := w.verify(h, body, keys, t.opt.Now())
	if err != nil {
		no := refuse(http.StatusUnauthorized, fault.Denied, "the signature does not hold")
		no.why = err.Error()
		return who, no
	}
	return who, nil
}

// challenge is what Slack wants to hear when a URL is given to it, "" for other calls.
func challenge(body []byte) string {
	var asked struct {
		Type      string `json:"type"`
		Challenge string `json:"challenge"`
	}
	if json.Unmarshal(body, &asked) != nil || asked.Type != "url_verification" || len(asked.Challenge) > maxID {
		return ""
	}
	return asked.Challenge
}
