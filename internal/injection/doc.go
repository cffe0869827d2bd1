// Package injection holds tests only: what others write tries to make an agent do
// what the operator did not ask for. The model in these tests obeys whoever speaks
// to it, and the operator has granted as much as can be granted, so that nothing
// but the rules under test stands in between.
//
// The matrix crosses where the words stand (a message, a page, a file, the name of
// a file, two results that are only complete together, memory, a summary, what a
// program printed), how they are disguised, and what they want done. Each cell
// names the rule that stops it. A second run switches each rule off, one at a time,
// and has to see the cells that rule holds go through or fall to another one.
package injection
