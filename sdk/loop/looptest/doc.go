// Package looptest tests a loop with plain Go: it is a host that answers as ombud does, with
// nothing behind it.
//
//	func TestItTellsOfNews(t *testing.T) {
//		h := looptest.New(t, "loop.yaml")
//		h.Config["repos"] = "golang/go"
//		h.HTTP = func(loop.Request) (loop.Response, error) {
//			return loop.Response{Status: 200, Body: `{"tag_name":"v2"}`}, nil
//		}
//		if err := h.Run(); err != nil {
//			t.Fatal(err)
//		}
//		if len(h.Notices) != 1 {
//			t.Errorf("%+v", h.Notices)
//		}
//	}
//
// # What it holds a loop to
//
// Calls, hosts of the web, tools and the memory that loop.yaml does not name are refused;
// so is what a test refuses with [Host.Refuse]. Requests, answers, logs, notes, calls and
// steps have the bounds they have in ombud. The clock stands still but for what a run sleeps.
//
// A run that sleeps is ended and run again from its beginning, and its calls are answered
// from the record. [Host.Again] does the same after a failure or a crash. A run that makes
// other calls than it made before fails the test, for in ombud it would do things twice.
// [EveryCrash] ends a run behind each of its calls in turn.
//
// # What it is not
//
// There is one loop in a test binary, the one that is given to loop.Main, and it is Go of
// this machine: its package variables outlive a run, which they do not in ombud. Time, memory
// and the limits of the sandbox are not there. Tests with more than one Host must not be
// parallel if the loop has such variables.
package looptest
