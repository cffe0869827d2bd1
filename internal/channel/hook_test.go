package channel

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/ombud-run/ombud/internal/fault"
)

// A call that no channel takes is answered as the listener answers.
func TestACallThatNoChannelTakes(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	New(Deps{}, Config{}).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/channels/none", nil))
	if w.Code != http.StatusNotFound || w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("%d %s", w.Code, w.Header())
	}
}

// Nobody is told of a channel's health once the channels have stopped: the store is closed
// then.
func TestAStoppedChannelTellsNobody(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *site) {
		s.add(nil)
		l, err := s.line("net")
		if err != nil {
			t.Fatal(err)
		}
		s.Stop()
		l.hearing(fault.New(fault.Denied, "the key is refused")) // at once, without a grace
		if l.telling != nil || len(s.talks.told()) != 0 {
			t.Errorf("%v %q", l.telling, s.talks.told())
		}
	})
}
