package looptest

import (
	"encoding/json"

	"github.com/ombud-run/ombud/wasmloop/abi"
)

// sees notes what of others a call brought in.
func (h *Host) sees(name string, request []byte) {
	switch name {
	case "http":
		h.read = "the answer of a web request"
	case "wait_signal":
		h.read = "a signal"
	case "short_get", "short_all":
		var req abi.NoteKey                       // the group is called the same in both
		if json.Unmarshal(request, &req) != nil { //nolint:musttag // in the ABI the names are those of the fields
			return
		}
		for key, n := range h.group(req.Group) {
			if n.read != "" && (name == "short_all" || key == req.Key) {
				h.read = "a note that was kept behind " + n.read
			}
		}
	}
}

// mayWait fails the test if a call would be put before a person and nobody is there.
func (h *Host) mayWait(c Call) {
	if c.Name == "http" && h.read != "" && !h.Attended {
		h.t.Errorf("looptest: the run has read %s, so ombud puts this request before a person and the run waits: %s (Host.Attended, if somebody is there)", h.read, c.Request)
	}
}
