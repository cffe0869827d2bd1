package whatsapp

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/channel"
	"github.com/ombud-run/ombud/internal/channel/channeltest"
	"github.com/ombud-run/ombud/internal/channel/whatsapp/whatsapptest"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/outbox"
)

const customer = "16505551234"

// setupCloud is an adapter with an API, and its log.
func setupCloud(t *testing.T) (*cloud, *whatsapptest.Graph, *secrets, *logged) {
	t.Helper()
	g := whatsapptest.NewGraph(t, customer)
	s := &secrets{all: map[string]string{partToken: whatsapptest.Token, partApp: whatsapptest.AppSecret, partVerify: whatsapptest.Verify}}
	log, text := newLog()
	a, err := CloudKind().Make(channel.Setup{Name: "biz", Values: map[string]string{partPhone: whatsapptest.PhoneID, partURL: g.URL}, Secret: s.get, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	c := a.(*cloud)
	t.Cleanup(c.client.CloseIdleConnections)
	return c, g, s, text
}

func TestACloudMessageIsSent(t *testing.T) {
	t.Parallel()
	c, g, _, _ := setupCloud(t)
	o := out(customer, "née — 😀")
	o.ReplyTo = "wamid.their"
	ref, err := c.Send(t.Context(), o)
	want := []whatsapptest.Sent{{ID: ref, To: customer, Type: "text", Text: "née — 😀", ReplyTo: "wamid.their", Key: "item-1/0"}}
	if err != nil || ref == "" || !reflect.DeepEqual(g.Sent(), want) {
		t.Errorf("%q %v\n%+v\nwant\n%+v", ref, err, g.Sent(), want)
	}
}

func TestAQuestionHasButtons(t *testing.T) {
	t.Parallel()
	c, g, _, _ := setupCloud(t)
	o := out(customer, "Delete it?")
	o.Approval = "apr_01"
	if _, err := c.Send(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	o.Piece.Text = strings.Repeat("é", maxWithButtons+1) // too long for them: it is answered in words
	if _, err := c.Send(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	sent := g.Sent()
	if want := []whatsapptest.Button{{ID: "a:apr_01:y", Title: "Approve"}, {ID: "a:apr_01:n", Title: "Deny"}}; sent[0].Type != "interactive" || !reflect.DeepEqual(sent[0].Buttons, want) {
		t.Errorf("%+v", sent[0])
	}
	if sent[1].Type != "text" || len(sent[1].Buttons) != 0 || sent[1].Text != o.Piece.Text {
		t.Errorf("a long one: %+v", sent[1])
	}
}

func TestWhatCannotBeACloudMessageIsNotSent(t *testing.T) {
	t.Parallel()
	c, g, _, _ := setupCloud(t)
	for name, o := range map[string]channel.Outgoing{
		"to nobody": out("", "hi"), "to a name": out("Ann", "hi"), "to a path": out("../"+customer, "hi"),
		"nothing": out(customer, " "), "too much": out(customer, strings.Repeat("a", limit+1)),
	} {
		if _, err := c.Send(t.Context(), o); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if g.Asked() != 0 {
		t.Errorf("Meta was asked %d times", g.Asked())
	}
}

func TestWhatMetaSaysOfAMessage(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault whatsapptest.GraphFault
		class fault.Class
		wait  time.Duration // of a RetryAfter
		sent  bool
		hint  string
	}{
		"well":                     {fault: whatsapptest.GraphFault{}, class: "", sent: true},
		"401":                      {fault: whatsapptest.GraphFault{Status: 401}, class: fault.Unavailable, hint: "access_token"},
		"the token is refused":     {fault: whatsapptest.GraphFault{Status: 400, Code: 190}, class: fault.Unavailable, hint: "access_token"},
		"403":                      {fault: whatsapptest.GraphFault{Status: 403, Code: 10}, class: fault.Denied},
		"404":                      {fault: whatsapptest.GraphFault{Status: 404}, class: fault.NotFound},
		"429":                      {fault: whatsapptest.GraphFault{Status: 429, Retry: 33 * time.Second}, class: fault.Unavailable, wait: 33 * time.Second},
		"too much in all":          {fault: whatsapptest.GraphFault{Status: 429, Code: 130429}, class: fault.Unavailable, wait: time.Minute},
		"the business has a limit": {fault: whatsapptest.GraphFault{Status: 400, Code: 80007, Retry: 90 * time.Second}, class: fault.Unavailable, wait: 90 * time.Second},
		"too much to one person":   {fault: whatsapptest.GraphFault{Status: 400, Code: 131056}, class: fault.Unavailable, wait: 10 * time.Second},
		"a day after they wrote":   {fault: whatsapptest.GraphFault{Status: 400, Code: 131047}, class: fault.Denied, hint: "24 hours"},
		"not on WhatsApp":          {fault: whatsapptest.GraphFault{Status: 400, Code: 131026}, class: fault.Invalid},
		"a wrong parameter":        {fault: whatsapptest.GraphFault{Status: 400, Code: 100}, class: fault.Invalid},
		"another refusal":          {fault: whatsapptest.GraphFault{Status: 400, Code: 131009}, class: fault.Invalid},
		"500":                      {fault: whatsapptest.GraphFault{Status: 500, Code: 131000}, class: fault.Unknown},
		"503":                      {fault: whatsapptest.GraphFault{Status: 503}, class: fault.Unknown},
		"500 that says its rate":   {fault: whatsapptest.GraphFault{Status: 500, Code: 130429}, class: fault.Unknown},
		"garbage":                  {fault: whatsapptest.GraphFault{How: whatsapptest.HTML}, class: fault.Unknown, sent: true},
		"cut":                      {fault: whatsapptest.GraphFault{How: whatsapptest.CutAnswer}, class: fault.Unknown, sent: true},
		"closed after it":          {fault: whatsapptest.GraphFault{How: whatsapptest.CloseAfter}, class: fault.Unknown, sent: true},
		"closed before it":         {fault: whatsapptest.GraphFault{How: whatsapptest.CloseBefore}, class: fault.Unknown},
		"no message is named":      {fault: whatsapptest.GraphFault{How: whatsapptest.Nothing}, class: fault.Unknown, sent: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, g, _, _ := setupCloud(t)
			g.Next(c.fault)
			ref, err := a.Send(t.Context(), out(customer, "hi"))
			if fault.ClassOf(err) != c.class || (ref != "") != (err == nil) || (len(g.Sent()) == 1) != c.sent || !strings.Contains(fault.HintOf(err), c.hint) {
				t.Errorf("%q, %v (%s, hint %q), sent %d; want %s", ref, err, fault.ClassOf(err), fault.HintOf(err), len(g.Sent()), c.class)
			}
			if r := (*outbox.RetryAfter)(nil); c.wait > 0 != asRetry(err, &r) || c.wait > 0 && r.After != c.wait {
				t.Errorf("%v, want to wait %s", err, c.wait)
			}
			if g.Asked() != 1 {
				t.Errorf("asked %d times", g.Asked())
			}
		})
	}
}

func asRetry(err error, to **outbox.RetryAfter) bool {
	r, ok := errors.AsType[*outbox.RetryAfter](err)
	*to = r
	return ok
}

func TestAnAnswerThatDoesNotComeIsADoubt(t *testing.T) {
	t.Parallel()
	c, g, _, _ := setupCloud(t)
	g.Next(whatsapptest.GraphFault{How: whatsapptest.Stuck})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for len(g.Sent()) == 0 {
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Millisecond):
			}
		}
		cancel()
	}()
	if _, err := c.Send(ctx, out(customer, "hi")); !fault.Is(err, fault.Unknown) {
		t.Errorf("%v (%s)", err, fault.ClassOf(err))
	}
}

func TestAnAPIThatIsNotReachedSurelyGotNothing(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.NotFoundHandler())
	srv.Close()
	s := &secrets{all: map[string]string{partToken: whatsapptest.Token}}
	log, _ := newLog()
	c, err := newCloud(channel.Setup{Values: map[string]string{partPhone: "1", partURL: srv.URL}, Secret: s.get, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Send(t.Context(), out(customer, "hi")); !fault.Is(err, fault.Unavailable) {
		t.Errorf("%v (%s)", err, fault.ClassOf(err))
	}
	delete(s.all, partToken)
	if _, err := c.Send(t.Context(), out(customer, "hi")); !fault.Is(err, fault.Unavailable) {
		t.Errorf("without a token: %v", err)
	}
}

func TestNoErrorTellsTheToken(t *testing.T) {
	t.Parallel()
	c, g, s, text := setupCloud(t)
	s.set(partToken, "EAAGa-refused-token")
	_, err := c.Send(t.Context(), out(customer, "hi"))
	_, errCheck := c.Check(t.Context())
	if !fault.Is(err, fault.Unavailable) || !fault.Is(errCheck, fault.Denied) {
		t.Errorf("%v, %v", err, errCheck)
	}
	g.Next(whatsapptest.GraphFault{How: whatsapptest.CloseBefore})
	_, errCut := c.Send(t.Context(), out(customer, "hi"))
	for _, said := range []string{err.Error(), errCheck.Error(), errCut.Error(), text.String()} {
		if strings.Contains(said, "EAAGa") {
			t.Errorf("it is told: %s", said)
		}
	}
}

func TestTheNumberIsAskedWhoItIs(t *testing.T) {
	t.Parallel()
	c, g, _, _ := setupCloud(t)
	want := channel.Me{ID: whatsapptest.PhoneID, Name: whatsapptest.Business, IDs: []string{whatsapptest.Number}}
	if me, err := c.Check(t.Context()); err != nil || !reflect.DeepEqual(me, want) {
		t.Errorf("%+v %v", me, err)
	}
	for name, f := range map[string]struct {
		fault whatsapptest.GraphFault
		class fault.Class
	}{
		"401": {whatsapptest.GraphFault{Status: 401, Code: 190}, fault.Denied}, "403": {whatsapptest.GraphFault{Status: 403, Code: 10}, fault.Denied},
		"429": {whatsapptest.GraphFault{Status: 429, Code: 4}, fault.Unavailable}, "500": {whatsapptest.GraphFault{Status: 500}, fault.Unavailable},
		"garbage": {whatsapptest.GraphFault{How: whatsapptest.HTML}, fault.Unavailable}, "cut": {whatsapptest.GraphFault{How: whatsapptest.CutAnswer}, fault.Unavailable},
		"another answer": {whatsapptest.GraphFault{Status: 200}, fault.Unavailable},
	} {
		g.Next(f.fault)
		if _, err := c.Check(t.Context()); !fault.Is(err, f.class) {
			t.Errorf("%s: %v (%s)", name, err, fault.ClassOf(err))
		}
	}
}

func TestRunTellsThatItStandsAndEndsWhenToldTo(t *testing.T) {
	t.Parallel()
	c, g, _, _ := setupCloud(t)
	in := channeltest.NewIntake()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx, in) }()
	if got, ok := in.Until(later(t), func(s channeltest.Seen) bool { return len(s.Ups) == 1 }); !ok || got.Ups[0].ID != whatsapptest.PhoneID {
		t.Errorf("%+v", got.Ups)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
	g.Next(whatsapptest.GraphFault{Status: 401, Code: 190})
	if err := c.Run(t.Context(), in); !fault.Is(err, fault.Denied) {
		t.Errorf("a refused key: %v", err)
	}
}

func TestAllThatACallSaysIsTaken(t *testing.T) {
	t.Parallel()
	c, _, _, text := setupCloud(t)
	in := channeltest.NewIntake()
	n := &whatsapptest.Notice{Names: map[string]string{customer: "Zoë / 😀"}}
	n.Text(customer, "wamid.1", "née / 😀").Reply(customer, "wamid.2", "yes", "wamid.ours").
		Media(customer, "wamid.3", "image", "look", "").Media(customer, "wamid.4", "document", "", "plan — 1.pdf").
		Press(customer, "wamid.5", "a:apr_01:n", "Deny", "wamid.ours").React(customer, "wamid.6", "👍", "wamid.ours").
		Raw(customer, "wamid.7", "unsupported", `"errors":[{"code":131051}]`).Raw(customer, "wamid.8", "button", `"button":{"payload":"more","text":"Tell me more"}`).
		Text(customer, "wamid.9", "/pair 123").
		Status("sent", "wamid.ours", "item-1/0", 0).Status("delivered", "wamid.ours2", "item-2/0", 0).Status("read", "wamid.ours3", "", 0).
		Status("failed", "wamid.ours4", "item-3/0", 131047)
	if s := whatsapptest.PostCloud(c.Hook(in), n.Body()); s != 200 {
		t.Fatal(s)
	}
	got := in.Now()
	want := []channel.Received{
		{ID: "wamid.1", Text: "née / 😀"},
		{ID: "wamid.2", Text: "yes", QuotesMe: true},
		{ID: "wamid.3", Text: "look\n[image]"},
		{ID: "wamid.4", Text: "[document: plan — 1.pdf]"},
		{ID: "wamid.5", Text: "Deny", QuotesMe: true, Press: &channel.Press{Approval: "apr_01", Ref: "wamid.ours"}},
		{ID: "wamid.6", Text: "[reaction: 👍]", Bot: true},
		{ID: "wamid.7", Text: "[unsupported that cannot be shown here]"},
		{ID: "wamid.8", Text: "Tell me more"},
		{ID: "wamid.9", Text: "/pair 123", Command: true},
	}
	for i := range want {
		want[i].Chat, want[i].Sender, want[i].SenderName, want[i].Title = customer, customer, "Zoë / 😀", "Zoë / 😀"
		if i < len(got.Taken) {
			want[i].At = got.Taken[i].At
		}
	}
	if !reflect.DeepEqual(got.Taken, want) {
		t.Errorf("%+v\nwant\n%+v", got.Taken, want)
	}
	if why := channel.Addressed(got.Taken[5], channel.Always); why != channel.NotAsked {
		t.Errorf("a reaction starts a turn: %s", why)
	}
	if want := map[string]string{"item-1/0": "wamid.ours", "item-2/0": "wamid.ours2"}; !reflect.DeepEqual(got.Arrived, want) {
		t.Errorf("arrived: %v", got.Arrived)
	}
	if !strings.Contains(text.String(), "wamid.ours4") || !strings.Contains(text.String(), "131047") {
		t.Errorf("a failure is not logged: %s", text)
	}
	if want := []string{"item-3/0 wamid.ours4: Meta says, code 131047: More than 24 hours have passed."}; !slices.Equal(got.Lost, want) {
		t.Errorf("lost: %q", got.Lost)
	}
}

// One message of a shape that is not known hides no other, and is an event itself.
func TestAMessageOfAnUnknownShapeHidesNoOther(t *testing.T) {
	t.Parallel()
	c, _, _, _ := setupCloud(t)
	in := channeltest.NewIntake()
	n := (&whatsapptest.Notice{}).Text(customer, "wamid.1", "before").Raw(customer, "wamid.2", "hologram", `"image":"none","text":7`).
		Raw(customer, "wamid.3", "text", `"text":{"body":"after"}`)
	n.Messages = append(n.Messages, json.RawMessage(`"nothing"`))
	n.Statuses = append(n.Statuses, json.RawMessage(`{"id":4,"status":["sent"]}`))
	n.Status("sent", "wamid.ours", "item-1/0", 0)
	if s := whatsapptest.PostCloud(c.Hook(in), n.Body()); s != 200 {
		t.Fatal(s)
	}
	got := in.Now()
	var said []string
	for _, m := range got.Taken {
		said = append(said, m.Text)
	}
	if want := []string{"before", "[message that cannot be shown here]", "after"}; !slices.Equal(said, want) || got.Arrived["item-1/0"] != "wamid.ours" {
		t.Errorf("%q, arrived %v", said, got.Arrived)
	}
}

func TestACallIsDoneWhenAllOfItIsDurable(t *testing.T) {
	t.Parallel()
	c, _, _, _ := setupCloud(t)
	in := channeltest.NewIntake()
	hook := c.Hook(in)
	body := new(whatsapptest.Notice).Text(customer, "wamid.2", "second").Text(customer, "wamid.1", "first").Body()
	if s := whatsapptest.PostCloud(hook, body); s != 200 {
		t.Error(s)
	}
	more := new(whatsapptest.Notice).Text(customer, "wamid.1", "first").Text(customer, "wamid.3", "third").Text(customer, "wamid.4", "fourth").Body()
	in.FailNext(1)
	if s := whatsapptest.PostCloud(hook, more); s != 503 {
		t.Error(s)
	}
	if s := whatsapptest.PostCloud(hook, more); s != 200 {
		t.Error(s)
	}
	if got := in.Now(); ids(got.Taken) != "wamid.2 wamid.1 wamid.3 wamid.4" {
		t.Errorf("taken: %s", ids(got.Taken))
	}
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if s := whatsapptest.PostCloud(hook, new(whatsapptest.Notice).Text(customer, "wamid.5", "x").Body()); s != 200 {
				t.Error(s)
			}
		})
	}
	wg.Wait()
	if got := in.Now(); len(got.Taken) != 5 {
		t.Errorf("taken: %s", ids(got.Taken))
	}
}

func TestTypingIsShownAtTheLastMessage(t *testing.T) {
	t.Parallel()
	c, g, _, _ := setupCloud(t)
	at := channel.Place{Chat: customer}
	if err := c.Typing(t.Context(), at); err != nil || g.Asked() != 0 {
		t.Errorf("before they wrote: %v, asked %d times", err, g.Asked())
	}
	body := new(whatsapptest.Notice).Text(customer, "wamid.1", "a").Text(customer, "wamid.2", "b").Body()
	if s := whatsapptest.PostCloud(c.Hook(channeltest.NewIntake()), body); s != 200 {
		t.Error(s)
	}
	if err := c.Typing(t.Context(), at); err != nil || !reflect.DeepEqual(g.Typing(), []string{"wamid.2"}) {
		t.Errorf("%v, at %q", err, g.Typing())
	}
	g.Next(whatsapptest.GraphFault{Status: 500})
	if err := c.Typing(t.Context(), at); err == nil {
		t.Error("no error")
	}
}

func TestOnlyOurNumberIsHeard(t *testing.T) {
	t.Parallel()
	c, _, _, _ := setupCloud(t)
	in := channeltest.NewIntake()
	n := &whatsapptest.Notice{PhoneID: "1"}
	n.Text(customer, "wamid.1", "hi").Status("sent", "wamid.2", "k", 0)
	if s := whatsapptest.PostCloud(c.Hook(in), n.Body()); s != 200 || len(in.Now().Taken) != 0 || len(in.Now().Arrived) != 0 {
		t.Errorf("%d %+v", s, in.Now())
	}
}

func TestMetaIsAnsweredIfItKnowsTheWord(t *testing.T) {
	t.Parallel()
	c, _, s, _ := setupCloud(t)
	hook := c.Hook(channeltest.NewIntake())
	ask := func(mode, word, challenge string) (int, string) {
		q := url.Values{"hub.mode": {mode}, "hub.verify_token": {word}, "hub.challenge": {challenge}}
		rec := httptest.NewRecorder()
		hook.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/?"+q.Encode(), nil))
		return rec.Code, rec.Body.String()
	}
	if status, body := ask("subscribe", whatsapptest.Verify, "1158201444"); status != 200 || body != "1158201444" {
		t.Errorf("%d %q", status, body)
	}
	for name, q := range map[string][3]string{
		"another word": {"subscribe", "x", "1"}, "no word": {"subscribe", "", "1"}, "another mode": {"unsubscribe", whatsapptest.Verify, "1"},
		"no challenge": {"subscribe", whatsapptest.Verify, ""}, "a book": {"subscribe", whatsapptest.Verify, strings.Repeat("1", 257)},
	} {
		if status, body := ask(q[0], q[1], q[2]); status != 403 || strings.Contains(body, "1") {
			t.Errorf("%s: %d %q", name, status, body)
		}
	}
	delete(s.all, partVerify)
	if status, _ := ask("subscribe", "", "1"); status != 403 {
		t.Errorf("no word is set: %d", status)
	}
}

func TestACloudChannelIsSetUpWithWhatItNeeds(t *testing.T) {
	t.Parallel()
	for name, v := range map[string]struct {
		phone, url string
		ok         bool
	}{
		"well": {"1", "", true}, "a slash at the end": {"1", "https://graph.example/v23.0/", true}, "this machine": {"1", "http://127.0.0.1:1", true},
		"no number": {"", "", false}, "the number itself": {"+1 555", "", false}, "a path": {"1/../2", "", false},
		"no address": {"1", "graph", false}, "in the clear": {"1", "http://graph.example", false}, "with a query": {"1", "https://graph.example/?x=1", false},
	} {
		if _, err := newCloud(channel.Setup{Values: map[string]string{partPhone: v.phone, partURL: v.url}}); (err == nil) != v.ok || err != nil && !fault.Is(err, fault.Config) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
