// Package recipe reads work that is described in one YAML file, and does it.
//
// A file is read in two stages. [Read] makes a [Recipe] of its text and names all
// that is wrong with it at once, each with file, line, column, reason and fix:
// what is accepted can be done, as far as the file can tell. The format is this
// package's own, marked by its first key, "ombud: recipe/v1"; a file without the
// mark belongs to another program, and whoever can read it is handed in as a
// [Reader]. [Recipe.Run] then does the steps through a [Kit], which records each
// under its name, so that a run that was interrupted, parked or retried goes on
// after what it has done.
//
// # States of a recipe
//
//	(none) ──file appears──▶ on ──disable──▶ off ──enable──▶ on
//	on ──a broken edit──▶ on, by the last good version, with the problem shown
//	any ──file is gone──▶ gone: it starts nothing, and its runs come to their end
//
// # What survives a crash
//
// A definition is a row by the hash of its text, written in the transaction that makes
// it the one in use: a run holds that hash, so it goes on by the text it began
// with, whatever becomes of the file. Whether a recipe is off is a row too.
package recipe
