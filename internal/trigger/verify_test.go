package trigger

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const (
	standardSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	standardID     = "msg_p5jXN8AQM9LWM0D4loKWxJek"
	standardBody   = `{"test": 2432232314}`
	standardTime   = 1614265330

	githubSecret = "It's a Secret to Everybody"
	slackSecret  = "8f742231b10e8888abcd99yyyzzz85a5"
	slackTime    = 1531420618
	slackBody    = "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar" +
		"&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands" +
		"%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
)

// header makes a header of pairs.
func header(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

func keysOf(t testing.TB, s Scheme, texts ...string) (out [][]byte) {
	t.Helper()
	for _, text := range texts {
		key, err := (&Webhook{Scheme: s}).keyOf(text)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, key)
	}
	return out
}

func sign(key []byte, parts ...string) []byte {
	m := hmac.New(sha256.New, key)
	m.Write([]byte(strings.Join(parts, "")))
	return m.Sum(nil)
}

// TestThePublishedVectorsHold takes the examples of those who made the schemes.
func TestThePublishedVectorsHold(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		w      Webhook
		secret string
		body   string
		now    int64
		h      http.Header
		id     identity
	}{
		"standard webhooks": {Webhook{Scheme: Standard}, standardSecret, standardBody, standardTime,
			header("webhook-id", standardID, "webhook-timestamp", "1614265330", "webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
			identity{standardID, true}},
		"standard webhooks without the prefix": {Webhook{Scheme: Standard}, strings.TrimPrefix(standardSecret, "whsec_"), standardBody, standardTime + 299,
			header("webhook-id", standardID, "webhook-timestamp", "1614265330", "webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
			identity{standardID, true}},
		"several signatures": {Webhook{Scheme: Standard}, standardSecret, standardBody, standardTime - 299,
			header("webhook-id", standardID, "webhook-timestamp", "1614265330", "webhook-signature",
				"v1,Ceo5qEr07ixe2NLpvHk3FH9bwy/WavXrAFQ/9tdO6mc= v2,Ceo5qEr07ixe2NLpvHk3FH9bwy/WavXrAFQ/9tdO6mc= v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
			identity{standardID, true}},
		"github": {Webhook{Scheme: GitHub}, githubSecret, "Hello, World!", 1,
			header("X-Hub-Signature-256", "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17", "X-GitHub-Delivery", "72d3162e"),
			identity{"72d3162e", false}},
		"slack": {Webhook{Scheme: Slack}, slackSecret, slackBody, slackTime,
			header("X-Slack-Request-Timestamp", "1531420618", "X-Slack-Signature", "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"),
			identity{}},
	} {
		got, err := c.w.verify(c.h, []byte(c.body), keysOf(t, c.w.Scheme, c.secret), time.Unix(c.now, 0))
		if err != nil || got != c.id {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		// Each of two secrets may have signed: one of them is being replaced.
		other := base64.StdEncoding.EncodeToString([]byte("another secret of 24 byte"))
		for _, both := range [][]string{{other, c.secret}, {c.secret, other}} {
			if _, err := c.w.verify(c.h, []byte(c.body), keysOf(t, c.w.Scheme, both...), time.Unix(c.now, 0)); err != nil {
				t.Errorf("%s with two secrets: %v", name, err)
			}
		}
		for what, bad := range map[string]func() (http.Header, string, string, int64){
			"another body":   func() (http.Header, string, string, int64) { return c.h, c.body + " ", c.secret, c.now },
			"another secret": func() (http.Header, string, string, int64) { return c.h, c.body, other, c.now },
			"no header":      func() (http.Header, string, string, int64) { return http.Header{}, c.body, c.secret, c.now },
			"twice": func() (http.Header, string, string, int64) {
				h := c.h.Clone()
				for k, v := range h {
					h[k] = append(v, v...)
				}
				return h, c.body, c.secret, c.now
			},
		} {
			h, body, secret, now := bad()
			if _, err := c.w.verify(h, []byte(body), keysOf(t, c.w.Scheme, secret), time.Unix(now, 0)); err == nil {
				t.Errorf("%s: %s is taken", name, what)
			}
		}
	}
}

// The cases of the reference library, with a clock of ours.
func TestStandardWebhooksRefusesWhatTheReferenceRefuses(t *testing.T) {
	t.Parallel()
	keys := keysOf(t, Standard, standardSecret)
	good := func() http.Header {
		return header("webhook-id", standardID, "webhook-timestamp", "1614265330", "webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=")
	}
	for name, change := range map[string]func(http.Header){
		"no id":             func(h http.Header) { h.Del("webhook-id") },
		"no timestamp":      func(h http.Header) { h.Del("webhook-timestamp") },
		"no signature":      func(h http.Header) { h.Del("webhook-signature") },
		"another signature": func(h http.Header) { h.Set("webhook-signature", "v1,Ceo5qEr07ixe2NLpvHk3FH9bwy/WavXrAFQ/9tdO6mc=") },
		"another version":   func(h http.Header) { h.Set("webhook-signature", "v2,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=") },
		"another time":      func(h http.Header) { h.Set("webhook-timestamp", "1614265331") },
		"the year 2001":     func(h http.Header) { h.Set("webhook-timestamp", "1000000000") },
		"a time that wraps": func(h http.Header) { h.Set("webhook-timestamp", "-9223372036854775808") },
		"no time":           func(h http.Header) { h.Set("webhook-timestamp", "now") },
		"another id":        func(h http.Header) { h.Set("webhook-id", "msg_x") },
		"the dot moved":     func(h http.Header) { h.Set("webhook-id", standardID+".1614265330") },
		"very many": func(h http.Header) {
			h.Set("webhook-signature", strings.Repeat("v1,AAAA ", 100)+h.Get("webhook-signature"))
		},
	} {
		h := good()
		change(h)
		if _, err := (&Webhook{Scheme: Standard}).verify(h, []byte(standardBody), keys, time.Unix(standardTime, 0)); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	for _, off := range []int64{-300, 300, 301} {
		if _, err := (&Webhook{Scheme: Standard}).verify(good(), []byte(standardBody), keys, time.Unix(standardTime+off, 0)); err == nil {
			t.Errorf("%d s off is taken", off)
		}
	}
}

func TestGenericSignaturesHaveTheirOwnHeaderAndForm(t *testing.T) {
	t.Parallel()
	body, key := "{}", []byte("s3cret")
	sum := sign(key, body)
	for i, c := range []struct {
		text string
		ok   bool
	}{
		{hex.EncodeToString(sum), true},
		{"sha256=" + hex.EncodeToString(sum), true},
		{strings.ToUpper(hex.EncodeToString(sum)), true},
		{base64.StdEncoding.EncodeToString(sum), true},
		{"sha256=" + base64.StdEncoding.EncodeToString(sum), true},
		{base64.StdEncoding.EncodeToString(sum[:31]), false},
		{hex.EncodeToString(sum[:31]), false},
		{"", false},
		{"sha1=" + hex.EncodeToString(sum), false},
	} {
		w := Webhook{Scheme: Generic, Header: "X-Sig"}
		if _, err := w.verify(header("X-Sig", c.text), []byte(body), [][]byte{key}, time.Now()); (err == nil) != c.ok {
			t.Errorf("%d: %v", i, err)
		}
	}
	if _, err := (&Webhook{Scheme: Standard}).keyOf("whsec_not base64"); err == nil {
		t.Error("a secret that is no base64 is taken")
	}
}

// Whatever is in the headers, only a sum of the key over the very bytes is taken.
func FuzzVerify(f *testing.F) {
	f.Add("v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", standardID, "1614265330", standardBody)
	f.Add("sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17", "x", "1", "Hello, World!")
	f.Add("v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503", "", "1531420618", slackBody)
	f.Add("v1, v1,= v0=", "\x00", "+1", "")
	key := []byte("a key that nobody who fuzzes has")
	f.Fuzz(func(t *testing.T, signature, id, at, body string) {
		h := http.Header{
			"Webhook-Id": {id}, "Webhook-Timestamp": {at}, "Webhook-Signature": {signature}, "X-Hub-Signature-256": {signature},
			"X-Github-Delivery": {id}, "X-Slack-Request-Timestamp": {at}, "X-Slack-Signature": {signature}, "X-Sig": {signature},
		}
		for _, w := range []Webhook{
			{Scheme: Standard}, {Scheme: GitHub}, {Scheme: Slack}, {Scheme: Generic, Header: "X-Sig", IDHeader: "X-Id"},
		} {
			for _, now := range []int64{standardTime, slackTime, 0} {
				if got, err := w.verify(h, []byte(body), [][]byte{key}, time.Unix(now, 0)); err == nil {
					t.Fatalf("%s took %q as %+v", w.Scheme, signature, got)
				}
			}
		}
	})
}

// Whoever has the key is believed, whatever is said; nobody is when a bit is another.
func TestEverySchemeTakesWhatWasSignedAndNothingElse(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.SliceOfN(rapid.Byte(), 1, 64).Draw(t, "key")
		body := rapid.SliceOf(rapid.Byte()).Draw(t, "body")
		id := rapid.StringMatching(`[!-~]{1,40}`).Draw(t, "id")
		now := rapid.Int64Range(1, 1<<33).Draw(t, "now")
		at := fmt.Sprint(now + rapid.Int64Range(-299, 299).Draw(t, "off"))
		if strings.HasPrefix(at, "-") {
			return
		}
		var w Webhook
		var h http.Header
		switch w.Scheme = rapid.SampledFrom([]Scheme{Standard, GitHub, Slack, Generic}).Draw(t, "scheme"); w.Scheme {
		case Standard:
			h = header("webhook-id", id, "webhook-timestamp", at, "webhook-signature", "v1,"+base64.StdEncoding.EncodeToString(sign(key, id, ".", at, ".", string(body))))
		case Slack:
			h = header("X-Slack-Request-Timestamp", at, "X-Slack-Signature", "v0="+hex.EncodeToString(sign(key, "v0:", at, ":", string(body))))
		case GitHub:
			h = header("X-Hub-Signature-256", "sha256="+hex.EncodeToString(sign(key, string(body))), "X-GitHub-Delivery", id)
		default:
			w = Webhook{Scheme: Generic, IDHeader: "X-Id"}.normal()
			h = header("X-Signature-256", hex.EncodeToString(sign(key, string(body))), "X-Id", id)
		}
		if _, err := w.verify(h, body, [][]byte{key}, time.Unix(now, 0)); err != nil {
			t.Fatalf("%s refuses what was signed: %v", w.Scheme, err)
		}
		if len(body) == 0 {
			return
		}
		at2 := rapid.IntRange(0, len(body)*8-1).Draw(t, "bit")
		body[at2/8] ^= 1 << (at2 % 8)
		if _, err := w.verify(h, body, [][]byte{key}, time.Unix(now, 0)); err == nil {
			t.Fatalf("%s takes another body", w.Scheme)
		}
	})
}
