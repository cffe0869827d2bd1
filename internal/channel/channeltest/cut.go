package channeltest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/ombud-run/ombud/internal/channel"
	"github.com/ombud-run/ombud/internal/channel/markup"
	"github.com/ombud-run/ombud/internal/outbox"
)

// Cut gives an adapter networks whose answers are cut: what was refused was not sent, though
// the words of the refusal were cut, and of what was not, nobody knows. open makes an adapter
// of the network at url, and done lets go of its connections.
func Cut(t *testing.T, open func(url string) (a channel.Adapter, done func(), err error)) {
	t.Helper()
	for status, refused := range map[int]bool{400: true, 403: true, 429: true, 200: false, 500: false} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, "{") // who is gone is not told
		}))
		t.Cleanup(srv.Close)
		a, done, err := open(srv.URL)
		if err != nil {
			t.Fatal(err)
		}
		_, err = a.Send(t.Context(), channel.Outgoing{Place: channel.Place{Chat: "1"}, Key: "k/0", Piece: markup.Piece{Text: "hi"}})
		if err == nil || outbox.SurelyNotSent(err) != refused {
			t.Errorf("%d: %v", status, err)
		}
		done()
	}
}
