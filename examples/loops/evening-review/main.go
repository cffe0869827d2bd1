// Command evening-review is a loop that goes over the day with the agent. What is open the
// agent hands over by the tool that this loop lends it: with a date it becomes a reminder,
// with an action a proposal, and each only once.
//
// Settings: focus, what the review is to look at most.
package main

import (
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/ombud-run/ombud/sdk/loop"
)

func init() {
	loop.Main(run)
	loop.Provide("open", open)
}

func main() {}

func run(k *loop.Kit) error {
	focus, err := k.Config("focus")
	if err != nil {
		return err
	}
	prompt := "Go over what happened today, by what you remember and the notes of our conversations. " +
		"Call the tool open once for each thing that somebody waits for or that was promised and not done. " +
		"Then say in at most five short lines what got done and what did not."
	if focus != "" {
		prompt += " Look most of all at " + focus + "."
	}
	answer, err := k.Ask(prompt)
	if err != nil {
		return err
	}
	return k.Notify("the day", answer)
}

// item is what the agent hands over.
type item struct {
	Title  string `json:"title"`
	Why    string `json:"why"`
	Due    string `json:"due"`
	Action string `json:"action"`
}

// kept is how long the same thing is not brought up again.
const kept = 7 * 24 * time.Hour

func open(k *loop.Kit, input json.RawMessage) (any, error) {
	var it item
	if err := json.Unmarshal(input, &it); err != nil {
		return nil, err
	}
	it.Title = strings.TrimSpace(it.Title)
	if it.Title == "" {
		return nil, errors.New("it has no title")
	}
	key := strings.ToLower(it.Title)
	_, known, err := k.Kept("open", key)
	if err != nil {
		return nil, err
	}
	if known {
		return "it is kept already", nil
	}
	said := "kept"
	switch {
	case it.Due != "":
		due, err := time.Parse(time.RFC3339, it.Due)
		if err != nil {
			return nil, errors.New("due is not a time in RFC 3339, as 2026-08-11T09:00:00Z")
		}
		if err := k.Remind(it.Title, due.Format(time.RFC3339), it.Why); err != nil {
			return nil, err
		}
		said = "a reminder is set"
	case it.Action != "":
		if err := k.Propose(it.Title, it.Why, it.Action); err != nil {
			return nil, err
		}
		said = "it is proposed; do not do it before it is accepted"
	}
	return said, k.Keep("open", key, it.Why, kept)
}
