package delegate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"time"

	"github.com/ombud-run/ombud/internal/act"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/harness/child"
	"github.com/ombud-run/ombud/internal/job"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/tool"
)

// PermitTool is the tool by which a program asks for leave. Nothing is done by it: its
// answer is the leave.
const PermitTool = "harness.permit"

// permitInput is what a program asks leave for. All of it is the program's own words.
type permitInput struct {
	Harness string `json:"harness"`
	Kind    string `json:"kind"`
	Tool    string `json:"tool"`
	What    string `json:"what"`            // the command, or the paths
	Input   string `json:"input,omitempty"` // JSON its tool is given
}

const permitSchema = `{"type":"object","additionalProperties":false,"required":["harness","kind","tool","what"],"properties":{
"harness":{"type":"string","minLength":1,"maxLength":64},
"kind":{"type":"string","enum":["edit","command","fetch","mcp","other"]},
"tool":{"type":"string","maxLength":512},
"what":{"type":"string","maxLength":8192},
"input":{"type":"string","maxLength":262144}}}`

// permit is the definition of harness.permit. It is local: what follows is done by the
// program behind its own walls.
func permitDefinition() tool.Definition {
	return tool.Definition{
		Name: PermitTool, Description: "Gives a coding agent leave to use one of its own tools.", Input: json.RawMessage(permitSchema),
		Kind: tool.Local, Within: true, Timeout: 10 * time.Second, MaxOutput: 1 << 10, Source: label.Own,
		Destination: func(json.RawMessage) tool.Destination { return tool.Destination{Nobody: true} },
		Scopes: func(raw json.RawMessage) ([]scope.Scope, error) {
			in, err := tool.Decode[permitInput](raw)
			if err != nil {
				return nil, err
			}
			s, err := scope.Of("harness", in.Harness+"/"+in.Kind)
			return []scope.Scope{s}, err
		},
		Summary: func(raw json.RawMessage) string {
			in, _ := tool.Decode[permitInput](raw) // validated
			verb := map[string]string{child.KindEdit: "change", child.KindCommand: "run", child.KindFetch: "fetch"}[in.Kind]
			if verb == "" {
				return in.Harness + " wants to use " + tool.Show(in.Tool) + ": " + whole(in.What)
			}
			return in.Harness + " wants to " + verb + " " + whole(in.What) + " (" + tool.Show(in.Tool) + ")"
		},
	}
}

// maxAsked bounds what a person is shown of what a program asks for, in bytes. Nobody can
// say yes to what is not shown, so it is much, and what is left out is said.
const maxAsked = 2000

func whole(what string) string {
	text := tool.ShowUpTo(what, maxAsked)
	if over := len(what) - maxAsked; over > 0 {
		text += " [and " + strconv.Itoa(over) + " bytes or more that are NOT shown]"
	}
	return text
}

// askAgain is how soon a question whose run has gone on without it is looked at again.
const askAgain = time.Second

// leave asks whether a program may do something, and waits as long as it is open.
func (s *Service) leave(ctx context.Context, w work, a child.Ask) child.Answer {
	in := permitInput{Harness: w.h.Name, Kind: a.Kind, Tool: a.Tool, What: what(a), Input: string(a.Input)}
	raw, err := json.Marshal(in)
	if err != nil {
		return child.Answer{Why: "the question cannot be read"}
	}
	sum := sha256.Sum256([]byte(strconv.Itoa(w.try) + "\x00" + a.ID + "\x00" + string(raw)))
	req := job.Request{Token: w.token, Tool: PermitTool, Input: raw, Key: hex.EncodeToString(sum[:]), Wait: time.Hour, Within: true}
	for {
		ans, err := s.Jobs.Call(ctx, req)
		switch {
		case err != nil:
			return child.Answer{Why: "nobody could be asked: " + string(fault.ClassOf(err))}
		case ans.Result.Status == act.OK:
			return child.Answer{Allow: true}
		case ans.Result.Status != act.Parked:
			return child.Answer{Why: ans.Result.Text}
		}
		pause := time.NewTimer(askAgain)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return child.Answer{Why: "the run has ended"}
		}
	}
}

// what is what a person is shown of a question.
func what(a child.Ask) string {
	text := a.Command
	if text == "" {
		for i, p := range a.Paths {
			if i > 0 {
				text += ", "
			}
			text += p
		}
	}
	if text == "" {
		text = a.Title
	}
	return fault.Cut(text, 8000)
}
