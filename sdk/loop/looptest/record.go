package looptest

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/ombud-run/ombud/wasmloop/abi"
)

// The bounds of a run and of a call.
const (
	maxRequest = 64 << 10
	maxAnswer  = 16 << 20
	maxCalls   = 10_000
	maxSteps   = 1000
	maxOutput  = 256 << 10
	maxLines   = 1000
	maxRecord  = 64 << 20 // of all requests, answers and results of steps
)

// The statuses of a call.
const (
	ok         = int32(abi.StatusOK)
	failed     = int32(abi.StatusFailed)
	undeclared = int32(abi.StatusUndeclared)
	refused    = int32(abi.StatusRefused)
	malformed  = int32(abi.StatusMalformed)
	unknown    = int32(abi.StatusUnknown)
)

// recorded is a call that has an answer, or waits for a time.
type recorded struct {
	Call
	status int32
	answer []byte
	at     time.Time
	wakes  time.Time // a sleep that is not over yet
	stale  bool      // it failed in an earlier try, so it is made again
}

// ownStep is a step of the loop's own.
type ownStep struct {
	cut    bool // a crash came within it
	done   bool
	result json.RawMessage
	at     int    // calls at its end: those within it are not made again
	kept   int    // bytes by then
	read   string // what of others the run had read by then
}

// Now is the time, and in a repeat the time at which the next call was made.
func (h *Host) Now() time.Time {
	if h.at < len(h.record) {
		return h.record[h.at].at
	}
	return h.Time
}

// Call answers a call as ombud does.
func (h *Host) Call(name string, request []byte) (status int32, answer []byte) {
	if h.total++; h.total > maxCalls {
		h.stop(fmt.Errorf("%w: more than %d host calls in one run", ErrLimit, maxCalls))
	}
	fn, known := abi.Functions[name]
	switch {
	case !known:
		return undeclared, fmt.Appendf(nil, "there is no host function %q", name)
	case !contains(h.m.host, name):
		if name == "write_log" || name == "progress" { // whose errors a loop does not see
			h.t.Errorf("looptest: loop.yaml does not name %q under host, so what the loop says with it is lost", name)
		}
		return undeclared, fmt.Appendf(nil, "the manifest does not name %q under host", name)
	}
	if why := h.mayCall(name, fn); why != "" {
		return refused, []byte(why)
	}
	if len(request) > maxRequest {
		return malformed, fmt.Appendf(nil, "the request is longer than %d bytes", maxRequest)
	}
	if status, why := h.mayReach(name, request); why != "" {
		return status, []byte(why)
	}
	if fn.Free {
		return h.answer(name, request)
	}
	h.keeps(len(request))
	if status, answer = h.numbered(Call{name, string(request)}); status == ok {
		h.sees(name, request)
	}
	h.keeps(len(answer))
	return status, answer
}

// keeps counts what is recorded, and ends a run of which it is too much.
func (h *Host) keeps(n int) {
	if h.kept += n; h.kept > maxRecord {
		h.stop(fmt.Errorf("%w: more than %d MiB of requests and answers in one run", ErrLimit, maxRecord>>20))
	}
}

// numbered answers a call from the record, or makes it and records it.
func (h *Host) numbered(c Call) (status int32, answer []byte) {
	if h.at++; h.at > maxSteps {
		h.stop(fmt.Errorf("%w: more than %d calls that reach something in one run", ErrLimit, maxSteps))
	}
	if h.at > len(h.record) {
		return h.make(c)
	}
	was := &h.record[h.at-1]
	switch {
	case was.stale: // what comes of it may lead elsewhere
		h.forked = true
		return h.make(c)
	case was.Call != c:
		if !h.forked {
			h.t.Errorf("looptest: done again, the run made another call %d: before %s %s, now %s %s", h.at, was.Name, was.Request, c.Name, c.Request)
		}
		h.record = h.record[:h.at-1]
		return h.make(c)
	case !was.wakes.IsZero():
		if h.Time.Before(was.wakes) {
			h.Time = was.wakes
		}
		was.wakes = time.Time{}
	}
	return was.status, was.answer
}

// make makes a call and records what came of it. The next attempt finds a sleep over.
func (h *Host) make(c Call) (int32, []byte) {
	r := recorded{Call: c, at: h.Time}
	h.mayWait(c)
	if c.Name == "sleep" {
		var req abi.Sleep
		if err := json.Unmarshal([]byte(c.Request), &req); err != nil {
			return malformed, []byte(err.Error())
		}
		r.wakes = h.Time.Add(milliseconds(req.Milliseconds))
	} else {
		r.status, r.answer = h.answer(c.Name, []byte(c.Request))
		if len(r.answer) > maxAnswer {
			r.status, r.answer = failed, fmt.Appendf(nil, "the answer has %d bytes; at most %d are handed on", len(r.answer), maxAnswer)
		}
	}
	h.Calls = append(h.Calls, c)
	if h.at > len(h.record) {
		h.record = append(h.record, r)
	} else {
		h.record[h.at-1] = r
	}
	switch {
	case h.crash == h.at:
		h.crash = 0
		h.stop(ErrCrashed)
	case !r.wakes.IsZero():
		h.stop(asleep{fmt.Errorf("asleep until %s", r.wakes)})
	}
	return r.status, r.answer
}

// milliseconds is n of them, or the longest time there is.
func milliseconds(n int64) time.Duration {
	const most = math.MaxInt64 / int64(time.Millisecond)
	return time.Duration(max(0, min(n, most))) * time.Millisecond
}
