package discord

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/ombud-run/ombud/internal/channel"
	"github.com/ombud-run/ombud/internal/channel/markup"
	"github.com/ombud-run/ombud/internal/outbox"
)

// What was refused was not sent, though the words of the refusal were cut; of what was not,
// nobody knows.
func TestARefusalThatIsCutIsOne(t *testing.T) {
	t.Parallel()
	for status, refused := range map[int]bool{400: true, 403: true, 429: true, 200: false, 500: false} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, "{")
		}))
		t.Cleanup(srv.Close)
		a, err := newAdapter(channel.Setup{
			Values: map[string]string{"api_url": srv.URL},
			Secret: func(context.Context, string) (string, error) { return "token", nil },
		}, settings{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = a.Send(t.Context(), channel.Outgoing{Place: channel.Place{Chat: "1"}, Key: "k/0", Piece: markup.Piece{Text: "hi"}})
		if err == nil || outbox.SurelyNotSent(err) != refused {
			t.Errorf("%d: %v", status, err)
		}
		a.api.client.CloseIdleConnections()
	}
}
