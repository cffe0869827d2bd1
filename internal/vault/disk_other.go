//go:build !unix

package vault

// modesMatter is false where a mode does not show who can read a file; the
// directory's inherited access list protects it.
const modesMatter = false
