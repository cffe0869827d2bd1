// Package guard stands between ombud and what others control: the addresses a
// name resolves to (Egress, HTTPClient, Proxy), the files a path leads to (Root,
// Sensitive) and the text that comes back (CleanText, CleanJSON, CutText).
//
// A guard refuses with class denied, whatever policy has allowed: policy decides
// on what a call says it does, a guard on what it turns out to do.
package guard
