package looptest

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/ombud-run/ombud/sdk/loop"
	"github.com/ombud-run/ombud/wasmloop/abi"
)

func contains(list []string, s string) bool { return slices.Contains(list, s) }

// mayCall says why a host function may not be called, "" if it may.
func (h *Host) mayCall(name string, fn abi.Function) string {
	if why, there := h.refused[name]; there {
		return why
	}
	switch {
	case fn.Declared(h.m.capabilities):
		return ""
	case fn.Class == "memory":
		return fmt.Sprintf("%s needs the capability memory:NAMESPACE%s in the manifest", name, fn.Value)
	}
	return fmt.Sprintf("%s needs the capability %s:%s in the manifest", name, fn.Class, fn.Value)
}

// mayReach says why a call may not reach what its request names.
func (h *Host) mayReach(name string, request []byte) (status int32, why string) {
	switch name {
	case "tool":
		var req abi.ToolCall
		if err := json.Unmarshal(request, &req); err != nil || req.Name == "" {
			return malformed, "the request names no tool"
		}
		if !contains(h.m.tools, req.Name) {
			return undeclared, "the manifest does not name the tool " + req.Name
		}
		if why, there := h.refused["tool:"+req.Name]; there {
			return refused, why
		}
	case "http":
		var req loop.Request
		if err := json.Unmarshal(request, &req); err != nil {
			return malformed, err.Error()
		}
		u, err := url.Parse(req.URL)
		if err != nil || u.Host == "" {
			return malformed, fmt.Sprintf("%q is no URL", req.URL)
		}
		host := strings.ToLower(u.Hostname())
		if !abi.CoversHost(h.m.capabilities, host, strings.ToLower(u.Host)) {
			return failed, "the manifest does not name the host " + host
		}
		if why, there := h.refused["http:"+host]; there {
			return failed, why // as a plain failure, which is what a loop sees of it in ombud
		}
	}
	return ok, ""
}
