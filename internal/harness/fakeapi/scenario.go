package fakeapi

import (
	"encoding/json"
	"fmt"
	"regexp"
	"time"
)

// Text is what the model says when a scenario gives it nothing else to say.
const Text = "The answer is 42."

// Fault says how a scenario goes wrong.
type Fault int

// The faults. Those of a stream leave an answer that is asked for whole as it is.
const (
	None   Fault = iota
	Refuse       // an error status
	Cut          // the connection breaks in the stream
	InBand       // an error event in the stream
	Hang         // not even headers come
	Stall        // nothing more comes after the first words of the stream
	Slow         // a word at a time, Pace apart
)

// Scenario decides how the requests of a run are answered. The zero Scenario says
// [Text].
type Scenario struct {
	Fault Fault
	Times int // so many requests for an answer meet the fault; 0: all

	Status     int           // of Refuse
	RetryAfter int           // seconds, told with Refuse; 0: not told
	Words      int           // said by Slow before the answer; default 5
	Pace       time.Duration // between them; default 1 s

	Answer func(Turn) Answer // nil: Text, always
}

// Answer is what the model says in one turn.
type Answer struct {
	Text     string // default: [Text]
	Call     Call   // a tool to call
	Declined bool   // the model declines to answer
}

// Call is a tool call.
type Call struct {
	Tool  string          // expression that the name of an offered tool matches; empty: no call
	Name  string          // the tool to call if no offered one matches: some CLIs take calls of tools they told of elsewhere
	Input json.RawMessage // what it is called with; a text for tools that take no JSON
}

// Plain says [Text].
func Plain() Scenario { return Scenario{} }

// Says says a text.
func Says(text string) Scenario {
	return Scenario{Answer: func(Turn) Answer { return Answer{Text: text} }}
}

// CallOf is a call of the first offered tool whose name matches, with what its input
// is made of.
func CallOf(tool string, input any) Call {
	raw, err := json.Marshal(input)
	if err != nil {
		panic(fmt.Sprintf("the input of a call: %v", err)) // a mistake of the test
	}
	return Call{Tool: tool, Input: raw}
}

// UseTool calls a tool once and then says [Text] with the beginning of what the tool
// said. A request that offers no tools (for a title, say) is answered by [Text].
func UseTool(tool string, input any) Scenario { return UseTools(CallOf(tool, input)) }

// UseTools calls tools one after the other, one a turn, and then answers as UseTool.
// Which is next is told by the results since the model last said something to the
// user, so a conversation that goes on begins anew.
func UseTools(calls ...Call) Scenario {
	return Scenario{Answer: func(t Turn) Answer {
		switch {
		case len(t.Tools) == 0:
			return Answer{}
		case t.Done < len(calls):
			return Answer{Text: fmt.Sprintf("Step %d.", t.Done+1), Call: calls[t.Done]}
		case len(t.Results) > 0:
			return Answer{Text: Text + " Tool said: " + head(t.Results[len(t.Results)-1])}
		}
		return Answer{}
	}}
}

func head(text string) string {
	const most = 60
	if r := []rune(text); len(r) > most {
		text = string(r[:most])
	}
	return text
}

// Line is one of a dialogue: what to answer if the last that came matches.
type Line struct {
	When string // expression; empty: always
	Answer
}

// Dialogue answers by the first line that matches what came last: the results of the
// tools if there are any, else what the user said. If none does it says [Text].
func Dialogue(lines ...Line) Scenario {
	exprs := make([]*regexp.Regexp, len(lines))
	for i, l := range lines {
		exprs[i] = regexp.MustCompile(l.When)
	}
	return Scenario{Answer: func(t Turn) Answer {
		for i, l := range lines {
			if exprs[i].MatchString(t.Last()) {
				return l.Answer
			}
		}
		return Answer{}
	}}
}

// Declines has the model decline to answer.
func Declines() Scenario {
	return Scenario{Answer: func(Turn) Answer { return Answer{Text: "I cannot help with that.", Declined: true} }}
}

// Fails answers the first so many requests by an error status, 0 is all of them, and
// tells to try again after so many seconds if that is not 0.
func Fails(status, times, retryAfter int) Scenario {
	return Scenario{Fault: Refuse, Status: status, Times: times, RetryAfter: retryAfter}
}

// With is a scenario with a fault.
func (s Scenario) With(f Fault) Scenario {
	s.Fault = f
	return s
}
