package trigger

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// stuck is a body that stops before its last byte, until it is let go.
type stuck struct {
	left    int64
	reached func()
	letGo   <-chan struct{}
}

func (s *stuck) Read(p []byte) (int, error) {
	if s.left == 0 {
		s.reached()
		<-s.letGo
		return 0, io.ErrUnexpectedEOF
	}
	n := int(min(int64(len(p)), s.left))
	s.left -= int64(n)
	return copy(p, bytes.Repeat([]byte("a"), n)), nil
}

func TestSlowSendersOnOneRouteKeepNoOtherBack(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house) {
		h.replace(on("large", hook(Webhook{Path: "large", Scheme: Open})), on("other", hook(Webhook{Path: "other", Scheme: Open})))
		h.wantCode(h.call("other", "", nil), 200) // nothing came, the first thing of all
		letGo := make(chan struct{})
		var senders sync.WaitGroup
		// send sends some bytes of as many as a body may have, and waits with the rest.
		send := func(bytes int64) {
			reached := make(chan struct{})
			r := httptest.NewRequest(http.MethodPost, "/hooks/large", &stuck{left: bytes, reached: sync.OnceFunc(func() { close(reached) }), letGo: letGo})
			r.ContentLength = maxBody
			answered := make(chan struct{})
			senders.Go(func() {
				defer close(answered)
				h.ServeHTTP(httptest.NewRecorder(), r)
			})
			select {
			case <-reached:
			case <-answered:
				t.Error("refused before it was read")
			}
		}
		for range 8 {
			send(0)
		}
		h.wantCode(h.call("large", "a", nil), 200) // what is only announced takes no room
		for range maxOfOne/maxBody - 1 {
			send(maxBody - 1)
		}
		send(maxBody)
		if got := h.call("large", strings.Repeat("a", maxOfOne/maxBody), nil); got.code != 503 || got.head.Get("Retry-After") == "" {
			t.Errorf("with the room of the route full: %d %s", got.code, got.text)
		}
		h.wantCode(h.call("other", "a", nil), 200)
		close(letGo)
		senders.Wait()
		if h.room.used != 0 || len(h.room.routes) != 0 {
			t.Errorf("%d bytes are held for nothing: %v", h.room.used, h.room.routes)
		}
		h.wantCode(h.call("large", "b", nil), 200)
	})
}
