package whatsapptest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func ask(t *testing.T, g *Graph, method, path, token, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequest(method, g.URL+"/"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := g.server.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var b bytes.Buffer
	_, _ = b.ReadFrom(resp.Body)
	return resp.StatusCode, b.String()
}

const ann = "16505551234"

func text(to, body, more string) string {
	return fmt.Sprintf(`{"messaging_product":"whatsapp","to":%q,"type":"text","text":{"body":%q}%s}`, to, body, more)
}

func buttons(title string, n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(`{"type":"reply","reply":{"id":"b%d","title":"%s%d"}}`, i, title, i))
	}
	return fmt.Sprintf(`{"messaging_product":"whatsapp","to":%q,"type":"interactive","interactive":{"type":"button","body":{"text":"?"},"action":{"buttons":[%s]}}}`, ann, strings.Join(all, ","))
}

func TestTheAPIKeepsTheRulesOfTheRealOne(t *testing.T) {
	t.Parallel()
	g := NewGraph(t, ann)
	for name, c := range map[string]struct {
		method, path, token, body string
		status, code              int
	}{
		"who":             {"GET", PhoneID + "?fields=verified_name", Token, "", 200, 0},
		"another token":   {"GET", PhoneID, "x", "", 401, 190},
		"another number":  {"GET", "1", Token, "", 400, 100},
		"text":            {"POST", PhoneID + "/messages", Token, text(ann, "hi", ""), 200, 0},
		"longest":         {"POST", PhoneID + "/messages", Token, text(ann, strings.Repeat("é", 4096), ""), 200, 0},
		"too long":        {"POST", PhoneID + "/messages", Token, text(ann, strings.Repeat("a", 4097), ""), 400, 100},
		"empty":           {"POST", PhoneID + "/messages", Token, text(ann, "", ""), 400, 100},
		"no product":      {"POST", PhoneID + "/messages", Token, `{"to":"1","type":"text","text":{"body":"a"}}`, 400, 100},
		"a name":          {"POST", PhoneID + "/messages", Token, text("Ann", "hi", ""), 400, 100},
		"longest key":     {"POST", PhoneID + "/messages", Token, text(ann, "hi", `,"biz_opaque_callback_data":"`+strings.Repeat("k", 512)+`"`), 200, 0},
		"key too long":    {"POST", PhoneID + "/messages", Token, text(ann, "hi", `,"biz_opaque_callback_data":"`+strings.Repeat("k", 513)+`"`), 400, 100},
		"answers nothing": {"POST", PhoneID + "/messages", Token, text(ann, "hi", `,"context":{"message_id":""}`), 400, 100},
		"never wrote":     {"POST", PhoneID + "/messages", Token, text("1", "hi", ""), 400, 131047},
		"not JSON":        {"POST", PhoneID + "/messages", Token, "hi", 400, 100},
		"three buttons":   {"POST", PhoneID + "/messages", Token, buttons("Yes", 3), 200, 0},
		"four buttons":    {"POST", PhoneID + "/messages", Token, buttons("Yes", 4), 400, 100},
		"no button":       {"POST", PhoneID + "/messages", Token, buttons("Yes", 0), 400, 100},
		"longest title":   {"POST", PhoneID + "/messages", Token, buttons(strings.Repeat("é", 19), 1), 200, 0},
		"title too long":  {"POST", PhoneID + "/messages", Token, buttons(strings.Repeat("e", 20), 1), 400, 100},
		"another type":    {"POST", PhoneID + "/messages", Token, `{"messaging_product":"whatsapp","to":"1","type":"text"}`, 400, 100},
	} {
		status, body := ask(t, g, c.method, c.path, c.token, c.body)
		var e struct {
			Error struct {
				Code int `json:"code"`
			} `json:"error"`
		}
		if err := json.Unmarshal([]byte(body), &e); err != nil || status != c.status || e.Error.Code != c.code {
			t.Errorf("%s: %d %s (%v), want %d with code %d", name, status, body, err, c.status, c.code)
		}
	}
	if n := len(g.Sent()); n != 5 {
		t.Errorf("%d messages were taken, want 5", n)
	}
	for body, want := range map[string]int{
		`{"messaging_product":"whatsapp","status":"read","message_id":"wamid.1","typing_indicator":{"type":"text"}}`: 200,
		`{"messaging_product":"whatsapp","status":"read","message_id":"wamid.2"}`:                                    200,
		`{"messaging_product":"whatsapp","status":"read","message_id":""}`:                                           400,
		`{"messaging_product":"whatsapp","status":"seen","message_id":"wamid.1"}`:                                    400,
	} {
		if status, got := ask(t, g, "POST", PhoneID+"/messages", Token, body); status != want {
			t.Errorf("%s: %d %s", body, status, got)
		}
	}
	if got := g.Typing(); len(got) != 1 || got[0] != "wamid.1" {
		t.Errorf("typing at %q", got)
	}
	g.Later(25 * time.Hour)
	if status, body := ask(t, g, "POST", PhoneID+"/messages", Token, text(ann, "hi", "")); status != 400 || !strings.Contains(body, "131047") {
		t.Errorf("a day later: %d %s", status, body)
	}
	g.Wrote(ann)
	if status, body := ask(t, g, "POST", PhoneID+"/messages", Token, text(ann, "hi", "")); status != 200 {
		t.Errorf("they wrote again: %d %s", status, body)
	}
}

func TestANoticeIsSignedAsItIsWritten(t *testing.T) {
	t.Parallel()
	body := new(Notice).Text(ann, "wamid.1", "née / 😀").Body()
	if strings.Contains(string(body), "é") || !strings.Contains(string(body), `n\u00e9e \/ \ud83d\ude00`) {
		t.Errorf("not as Meta writes it: %s", body)
	}
	var v any
	if err := json.Unmarshal(body, &v); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	if Sign(AppSecret, marshal(v)) == Sign(AppSecret, body) {
		t.Error("a body that was read and written again has the same signature")
	}
	var got string
	status := PostCloud(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { got = r.Header.Get("X-Hub-Signature-256") }), body)
	if status != 200 || got != Sign(AppSecret, body) {
		t.Errorf("%d %q", status, got)
	}
	srv := httptest.NewServer(http.NotFoundHandler())
	defer srv.Close()
	if status, err := PostCloudTo(srv.Client(), srv.URL, body); status != 404 || err != nil {
		t.Errorf("%d %v", status, err)
	}
	n := 0
	srv2 := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n++; n < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer srv2.Close()
	if status, err := PostTo(srv2.Client(), srv2.URL, "s", body); status != 200 || err != nil || n != 3 {
		t.Errorf("%d %v after %d", status, err, n)
	}
}
