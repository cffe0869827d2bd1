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
	switch fn.Class {
	case "memory":
		if !slices.ContainsFunc(h.m.capabilities, func(c string) bool {
			space, ok := strings.CutPrefix(c, "memory:")
			return ok && (space == "*" || strings.HasSuffix(space, ":write") == (fn.Value == ":write"))
		}) {
			return fmt.Sprintf("%s needs the capability memory:NAMESPACE%s in the manifest", name, fn.Value)
		}
	case "tool":
		if !h.capable("tool", fn.Value) {
			return fmt.Sprintf("%s needs the capability tool:%s in the manifest", name, fn.Value)
		}
	}
	return ""
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
		if !h.capable("http", host) {
			return failed, "the manifest does not name the host " + host
		}
		if why, there := h.refused["http:"+host]; there {
			return failed, why // as a plain failure, which is what a loop sees of it in ombud
		}
	}
	return ok, ""
}

// capable says whether the manifest has a capability of a class that covers a value.
func (h *Host) capable(class, value string) bool {
	return slices.ContainsFunc(h.m.capabilities, func(c string) bool {
		pattern, ok := strings.CutPrefix(c, class+":")
		return ok && covers(strings.ToLower(pattern), value)
	})
}

// covers is the rule of the host: "*", the same, a beginning that ends in ".*", or an end
// that begins with "*.".
func covers(pattern, value string) bool {
	if pattern == "*" || pattern == value {
		return true
	}
	if begin, ok := strings.CutSuffix(pattern, "*"); ok && strings.HasSuffix(begin, ".") && strings.HasPrefix(value, begin) {
		return true
	}
	end, ok := strings.CutPrefix(pattern, "*")
	return ok && strings.HasPrefix(end, ".") && strings.HasSuffix(value, end)
}
