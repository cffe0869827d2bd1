// Package karmax reads what was written for KARMAX.
//
// # Recipes
//
// A recipe file without the mark of ombud's own format is one of KARMAX's, and is read as
// KARMAX reads it, so that it can be taken over unchanged: unknown top keys are let pass,
// a template's missing value is empty, every key of the payload is a name. What is let
// pass is a warning that ombud recipe check shows. What the format says and KARMAX did
// not do is done: sleep waits, a webhook is mounted, grants are held, inputs of tools are
// passed as they are given.
package karmax
