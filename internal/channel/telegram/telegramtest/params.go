package telegramtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
)

// params are the parameters of a call: a string as it is, anything else as JSON, however
// the call was made.
type params map[string]string

const maxBody = 1 << 20

// parseParams reads the parameters from a query, a form, a multipart form or JSON.
func parseParams(r *http.Request) (params, error) {
	p := params{}
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil && r.Header.Get("Content-Type") != "" {
		return nil, fmt.Errorf("unsupported content type: %w", err)
	}
	if kind == "application/json" {
		return p, p.fromJSON(r.Body)
	}
	if kind == "multipart/form-data" {
		// A form without a part, as of a method without parameters, is an empty body.
		if err := r.ParseMultipartForm(maxBody); err != nil && !errors.Is(err, io.EOF) && !strings.Contains(err.Error(), "EOF") {
			return nil, err
		}
	} else if err := r.ParseForm(); err != nil {
		return nil, err
	}
	for name, values := range r.Form {
		p[name] = values[0]
	}
	return p, nil
}

func (p params) fromJSON(body io.Reader) error {
	data, err := io.ReadAll(io.LimitReader(body, maxBody))
	if err != nil || len(data) == 0 {
		return err
	}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		return fmt.Errorf("can't parse JSON object: %w", err)
	}
	for name, v := range raw {
		var text string
		if json.Unmarshal(v, &text) == nil {
			p[name] = text
		} else {
			p[name] = string(v)
		}
	}
	return nil
}

// int is an integer parameter, 0 where there is none or it is none.
func (p params) int(name string) int64 {
	n, err := strconv.ParseInt(p[name], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func (p params) bool(name string) bool { return p[name] == "true" || p[name] == "1" }

// decode reads a parameter that is JSON into v, and reports whether it is there.
func (p params) decode(name string, v any) (bool, error) {
	if p[name] == "" || p[name] == "null" {
		return false, nil
	}
	return true, json.Unmarshal([]byte(p[name]), v)
}
