// Package checkpoint keeps the state of a git work tree before a call changes it,
// so that the operator can take the call back.
//
// # What is kept
//
// The tracked files of the work tree and the untracked ones that git does not
// ignore, byte for byte: they are stored without any filter, so nothing that
// .gitattributes names is run and line ends stay as they are. Of permissions the
// executable bit decides whether a file has changed; a restored file gets all the
// permissions it had. Not kept: ignored files, empty directories, the index, what is
// inside .git, files over MaxFile and files that cannot be read. A submodule or a
// repository inside the repository is kept as the commit it is at, and not restored.
//
// A checkpoint is two trees, before and after the call, in the repository's own object
// database, each held by a ref of its own, refs/ombud/checkpoints/<instance>/<id>. The
// ref points to a tree and not to a commit, so no log, graph or branch shows it.
// Index, HEAD, branches, stash, reflog and config are not touched and no hook,
// file system monitor, filter, text converter or transport is run: the index is one
// of our own, under the cache directory, and what a repository's config could name is
// overridden on git's command line. git runs as a confined job.
//
// # When
//
// The tree before a call is taken after the call was decided and before its intent is
// committed; the row of the checkpoint is part of the commit of the intent. So:
//
//	killed while the tree is taken      nothing is recorded; the call is decided and made anew
//	killed between ref and intent       a ref without a row, which is swept
//	killed between intent and outcome   a row without the tree after the call: what the
//	                                    call changed cannot be told from what came later,
//	                                    and undo says so and wants --force
//
// The tree after the call is taken when the effect has ended, and recorded with its
// outcome. A call that changed nothing leaves no row.
//
// A checkpoint never keeps a call from being made. Where none can be taken (no git, a
// bare repository, too much new data, no time, no leave to write) the call goes on and
// the row says that there is none, and why.
//
// # Undo
//
// Undo takes back what a call, and the calls after it, changed, file by file. What
// somebody else changed meanwhile is left alone, and where it is the same file undo
// refuses and names it. An undo is a call of the tool git.restore, which only the
// operator can make; it has a checkpoint of its own and can be undone. Each file is
// replaced whole. An undo that was interrupted goes on at the next start with the
// files that are still as they were when it began, and names those that are not.
//
// # What survives a crash
//
// The rows and the refs. The list of what is known of each file is memory only: after
// a start the first checkpoint of a repository reads every file once.
package checkpoint
