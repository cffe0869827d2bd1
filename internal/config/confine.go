package config

import (
	"fmt"
	"slices"
	"strings"
)

// What happens where a program cannot be confined.
const (
	EnforceStrict = "strict" // it does not run
	EnforceBest   = "best"   // it runs with what there is
	EnforceOff    = "off"    // programs are not confined
)

// What a program may reach of the network.
const (
	NetworkNone  = none
	NetworkProxy = "proxy" // what the fetch tool may reach, through ombud's proxy
	NetworkAll   = all
)

// Confine says how programs are confined.
type Confine struct {
	Enforce string // strict
}

// oneOf reads a value that is one of some words.
func oneOf(words ...string) func(value) (string, error) {
	return func(v value) (string, error) {
		s, err := v.one()
		if err == nil && !slices.Contains(words, s) {
			err = &complaint{item: -1, msg: fmt.Sprintf("%q is none of %s", s, strings.Join(words, ", ")), near: nearest(s, words)}
		}
		return s, err
	}
}
