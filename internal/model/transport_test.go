package model

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
)

func TestAKeyGoesToTheConfiguredServerOnly(t *testing.T) {
	t.Parallel()
	var other atomic.Int64
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { other.Add(1) }))
	t.Cleanup(elsewhere.Close)
	home := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
	}))
	t.Cleanup(home.Close)
	client, err := NewHTTPClient(home.URL+"/v1", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	ask := func(url string) (int, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("x-api-key", "secret")
		res, err := client.Do(req)
		if err != nil {
			return 0, err
		}
		return res.StatusCode, res.Body.Close()
	}
	if status, err := ask(home.URL + "/v1/models"); err != nil || status != http.StatusTemporaryRedirect {
		t.Errorf("its own server, which redirects: %d, %v", status, err)
	}
	for _, url := range []string{elsewhere.URL, "https://example.com/v1"} {
		if _, err := ask(url); !fault.Is(err, fault.Denied) {
			t.Errorf("%s: %v, want denied", url, err)
		}
	}
	if other.Load() != 0 {
		t.Errorf("%d requests arrived elsewhere", other.Load())
	}
	if _, err := NewHTTPClient("ftp://example.com", time.Now); !fault.Is(err, fault.Config) {
		t.Errorf("a base that is no http address: %v", err)
	}
}
