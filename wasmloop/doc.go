// Package wasmloop is the extension tier of signed loops: WASM modules made by others,
// each with a manifest that says what it may reach, run in a sandbox that grants exactly
// that.
//
// An artifact is one file, a [Manifest], [Signature]s and a module. Install is a
// transaction: verify, show, approve, record, activate. Bytes are never executed on
// arrival.
//
// # Formats
//
// Format v1 is that of KARMAX (files end in .kloop). It is read as it is, and what its
// signature leaves out (description, tools, provided tools) is shown as unsigned and
// approved by itself: [Artifact.Unsigned]. Format v2 (files end in .oloop) is what [Pack]
// and [Sign] write: the signature is over the whole manifest and the role of the signer,
// and the header has one spelling.
//
// # What survives a crash
//
// Files are replaced by rename after a sync, so each is the old one or the new one.
// [Installer.Install] is cut off before its lockfile is written, and then the old loop is
// there, or after it, and then the new one is; grants that were not written yet are
// written by the next look at the directory.
package wasmloop
