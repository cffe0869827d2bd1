// Package bench measures ombud. Each figure stands beside its limit or its peer,
// measured in the same run in alternating rounds, because the same disk and the
// same machine give other absolute numbers ten minutes later. docs/performance.md
// says how to read the table.
package bench
