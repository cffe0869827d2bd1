package httpd

import (
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"github.com/ombud-run/ombud/internal/fault"
)

// health says that the process answers.
func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	reply(w, http.StatusOK, struct {
		Status string `json:"status"`
	}{"ok"})
}

// ready says whether the daemon takes work.
func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	reasons := s.deps.Ready(r.Context())
	status := http.StatusOK
	if len(reasons) > 0 {
		status = http.StatusServiceUnavailable
	}
	reply(w, status, struct {
		Ready   bool     `json:"ready"`
		Reasons []string `json:"reasons,omitempty"`
	}{len(reasons) == 0, reasons})
}

// metrics tells what is measured, to whom may know.
func (s *Server) metrics(w http.ResponseWriter, r *http.Request) {
	if no := s.Authorize(r); no != nil && !(s.cfg.onlyHere() && fromHere(r)) {
		w.Header().Set("WWW-Authenticate", "Bearer")
		refuse(w, &refusal{http.StatusUnauthorized, fault.Denied, no.Error()})
		return
	}
	list, err := s.deps.Metrics(r.Context())
	if err != nil {
		s.log.Error("metrics", "error", err)
		refuse(w, &refusal{http.StatusServiceUnavailable, fault.Unavailable, "nothing can be measured now"})
		return
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write(format(append(list, s.own()))) // the caller is gone: nothing is to be done
}

// Authorize refuses a request without the admin token: Denied.
func (s *Server) Authorize(r *http.Request) error {
	token, is := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !is || token == "" || !s.deps.Admin(r.Context(), token) {
		return fault.New(fault.Denied, "this needs the admin token")
	}
	return nil
}

// fromHere reports whether a request came over loopback and not for somebody else.
func fromHere(r *http.Request) bool {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	addr, err1 := netip.ParseAddr(host)
	forwarded := r.Header.Get("Forwarded") != "" || r.Header.Get("X-Forwarded-For") != ""
	return err == nil && err1 == nil && addr.Unmap().IsLoopback() && !forwarded
}

// own is how many requests were answered.
func (s *Server) own() Metric {
	s.counts.mu.Lock()
	defer s.counts.mu.Unlock()
	m := Metric{Name: "ombud_http_requests_total", Help: "Requests answered by the listener, by status.", Counter: true}
	for status, n := range s.counts.m {
		m.Samples = append(m.Samples, Sample{Labels: []Label{{"code", strconv.Itoa(status)}}, Value: float64(n)})
	}
	return m
}
