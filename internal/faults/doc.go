// Package faults holds, as tests, faults that another daemon of this kind really
// had: each test does what went wrong there to the whole of ours, or to the parts
// of it where that is decided, and wants the right behaviour.
package faults
