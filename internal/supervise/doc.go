// Package supervise keeps programs running that are asked again and again, such as tool
// processes and servers of a protocol: one life after the other, with a pause that grows,
// and nothing started in an instance that is held. It says how a program ended, and keeps
// what it wrote to its standard error.
//
// It knows no protocol and keeps nothing: what a life is, and what is recorded of its end,
// is its caller's.
package supervise
