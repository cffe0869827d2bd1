// Package secret keeps values that only the border where they are used may see: keys
// of providers, tokens of services. Everything else names them: "secret:NAME" as a
// whole value in the configuration, "{{secret:NAME}}" within the text of a header.
//
// A secret has one value. Setting it again replaces the value and counts the version
// up; the one before is gone from the store. It is set and removed by the operator
// only, each time with an audit entry and an event in the same commit, neither with
// the value, and no method gives the value back but Resolve, whose result hides
// itself until it is revealed where it is sent.
//
// A secret may be bound to hosts; its value says whether it may be sent to a URL.
// Every value is told to the redactor before it can be used: when the daemon starts
// (Load), when it is set and when it is resolved. One that is replaced or removed
// stays known there until the daemon ends.
//
// What survives a crash: a secret that was acknowledged, or none of it. When it was
// last used is written now and then and may be lost.
package secret
