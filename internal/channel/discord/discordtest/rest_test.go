package discordtest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// call makes a REST call as the bot and returns the status with the body.
func call(t *testing.T, s *Server, method, path, body string) (int, string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	return callWith(ctx, s, method, path, body, "Bot "+s.Token)
}

func callWith(ctx context.Context, s *Server, method, path, body, auth string) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.URL+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("User-Agent", "DiscordBot (https://example.org, 1)")
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", auth)
	resp, err := s.http.Client().Do(req)
	if err != nil {
		return 0, "", err
	}
	data, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(data), errors.Join(err, resp.Body.Close())
}

func TestCallsAreJudgedAsDiscordDoes(t *testing.T) {
	t.Parallel()
	s := New(t)
	s.AddChannel(Channel{ID: "7", GuildID: Guild, Name: "secret"})
	s.Deny("7", 50001)
	s.AddChannel(Channel{ID: "8", Type: 1})
	s.Deny("8", 50007)
	said := s.Write(General, "hello")
	s.Limit(100, time.Minute)
	general := "/channels/" + General
	for name, c := range map[string]struct {
		method, path, body string
		status             int
		with               string
	}{
		"me":              {"GET", "/users/@me", "", 200, `"username":"ombud"`},
		"gateway":         {"GET", "/gateway/bot", "", 200, `"session_start_limit":{"total":1000`},
		"channel":         {"GET", general, "", 200, `"name":"general"`},
		"no channel":      {"GET", "/channels/1", "", 404, `"code":10003`},
		"no access":       {"POST", "/channels/7/messages", `{"content":"x"}`, 403, `"code":50001`},
		"no direct":       {"POST", "/channels/8/messages", `{"content":"x"}`, 403, `"code":50007`},
		"2000 characters": {"POST", general + "/messages", `{"content":"` + strings.Repeat("é", 2000) + `"}`, 200, `"id"`},
		"2001 characters": {"POST", general + "/messages", `{"content":"` + strings.Repeat("é", 2001) + `"}`, 400, `"code":50035`},
		"empty":           {"POST", general + "/messages", `{"content":" \n "}`, 400, `"code":50006`},
		"no content":      {"POST", general + "/messages", `{}`, 400, `"code":50006`},
		"not JSON":        {"POST", general + "/messages", `hello`, 400, `"code":50109`},
		"long nonce":      {"POST", general + "/messages", `{"content":"x","nonce":"12345678901234567890123456"}`, 400, `"code":50035`},
		"long custom id": {"POST", general + "/messages", `{"content":"x","components":[{"type":1,"components":[{"type":2,"style":3,"label":"y","custom_id":"` +
			strings.Repeat("x", 101) + `"}]}]}`, 400, `"code":50035`},
		"reply":            {"POST", general + "/messages", `{"content":"x","message_reference":{"message_id":"` + said.ID + `"}}`, 200, `"type":19`},
		"reply to nothing": {"POST", general + "/messages", `{"content":"x","message_reference":{"message_id":"5"}}`, 400, `"code":50035`},
		"reply to what went": {"POST", general + "/messages", `{"content":"x","message_reference":{"message_id":"5","fail_if_not_exists":false}}`,
			200, `"type":0`},
		"edit another's":    {"PATCH", general + "/messages/" + said.ID, `{"content":"x"}`, 403, `"code":50005`},
		"edit nothing":      {"PATCH", general + "/messages/5", `{"content":"x"}`, 404, `"code":10008`},
		"typing":            {"POST", general + "/typing", "", 204, ""},
		"wrong interaction": {"POST", "/interactions/1/x/callback", `{"type":6}`, 404, `"code":10062`},
		"history over 100":  {"GET", general + "/messages?limit=101", "", 400, `"code":50035`},
		"another path":      {"GET", "/x", "", 404, ""},
	} {
		if status, body, err := call(t, s, c.method, c.path, c.body); err != nil || status != c.status || !strings.Contains(body, c.with) {
			t.Errorf("%s: %d %.300s %v", name, status, body, err)
		}
	}
	if status, _, err := callWith(t.Context(), s, "GET", "/users/@me", "", "Bot wrong"); err != nil || status != 401 {
		t.Errorf("a wrong token: %d %v", status, err)
	}
	if status, _, err := callWith(t.Context(), s, "GET", "/users/@me", "", s.Token); err != nil || status != 401 {
		t.Errorf("a token without Bot: %d %v", status, err)
	}
}

func TestANonceMakesOneMessage(t *testing.T) {
	t.Parallel()
	s := New(t)
	s.Limit(100, time.Minute)
	path := "/channels/" + General + "/messages"
	ids := map[string]int{}
	for _, body := range []string{
		`{"content":"a","nonce":"k1","enforce_nonce":true}`, `{"content":"a","nonce":"k1","enforce_nonce":true}`, // one
		`{"content":"a","nonce":"k2","enforce_nonce":true}`, // another
		`{"content":"a","nonce":"k1"}`,                      // nobody asked for it
		`{"content":"a"}`, `{"content":"a"}`,
	} {
		_, answer, err := call(t, s, "POST", path, body)
		var m Message
		if err := errors.Join(err, json.Unmarshal([]byte(answer), &m)); err != nil {
			t.Fatal(err)
		}
		ids[m.ID]++
	}
	if len(ids) != 5 || len(s.Sent()) != 5 {
		t.Errorf("ids %v, %d sent", ids, len(s.Sent()))
	}
}

func TestTheSixthMessageWaits(t *testing.T) {
	t.Parallel()
	s := New(t)
	s.Limit(5, time.Minute)
	for n := range 6 {
		status, body, err := call(t, s, "POST", "/channels/"+General+"/messages", `{"content":"x"}`)
		if err != nil || (status == 429) != (n == 5) || status == 429 && !strings.Contains(body, `"retry_after":59.`) {
			t.Errorf("%d: %d %s %v", n, status, body, err)
		}
	}
	if status, _, _ := call(t, s, "POST", "/channels/"+DM+"/messages", `{"content":"x"}`); status != 200 {
		t.Errorf("another channel: %d", status)
	}
}

func TestHistoryIsNewestFirst(t *testing.T) {
	t.Parallel()
	s := New(t)
	var ids []string
	for _, text := range []string{"1", "2", "3", "4"} {
		ids = append(ids, s.Write(General, text).ID)
	}
	for query, want := range map[string]string{
		"": "4 3 2 1", "?limit=2": "4 3", "?limit=2&after=" + ids[0]: "3 2", "?before=" + ids[2]: "2 1", "?after=" + ids[3]: "",
	} {
		_, body, err := call(t, s, "GET", "/channels/"+General+"/messages"+query, "")
		var list []Message
		if err := errors.Join(err, json.Unmarshal([]byte(body), &list)); err != nil {
			t.Fatal(err)
		}
		var texts []string
		for _, m := range list {
			texts = append(texts, m.Content)
			if m.GuildID != "" || m.Member != nil {
				t.Errorf("a reading tells of the guild: %+v", m)
			}
		}
		if got := strings.Join(texts, " "); got != want {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	for f, want := range map[Fault]struct {
		status int
		sent   int
		broken bool
	}{
		Unauthorized: {401, 0, false}, Forbidden: {403, 0, false}, TooMany: {429, 0, false}, Broken: {500, 0, false},
		Garbage: {200, 0, false}, BadGateway: {502, 1, false}, Cut: {200, 1, true}, Hang: {0, 0, true}, LostAfter: {0, 1, true}, LostBefore: {0, 0, true},
	} {
		t.Run(string(f), func(t *testing.T) {
			t.Parallel()
			s := New(t)
			s.Fault("POST /channels", f, 1)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			if f == Hang {
				ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
			}
			defer cancel()
			status, body, err := callWith(ctx, s, "POST", "/channels/"+General+"/messages", `{"content":"x"}`, "Bot "+s.Token)
			if status != want.status || (err != nil) != want.broken || len(s.Sent()) != want.sent {
				t.Errorf("%d %q %v, %d sent", status, body, err, len(s.Sent()))
			}
			if status, _, err := call(t, s, "POST", "/channels/"+DM+"/messages", `{"content":"x"}`); status != 200 {
				t.Errorf("after it: %d %v", status, err)
			}
		})
	}
}
