package checkpoint

import "os"

// Place is where a repository is. Paths are absolute and without links.
type Place struct {
	Top       string // the work tree
	GitDir    string // of this work tree
	CommonDir string // of all its work trees; the same, but for a linked one
}

// Find returns the repository a path is in: the innermost one. The error says that it is
// in none, or in one without a work tree.
func Find(path string) (Place, error) {
	p, err := find(path)
	return Place{p.top, p.gitDir, p.commonDir}, err
}

// SafeArgs are words before git's own that take from a repository's configuration, and
// from the operator's, whatever would run a program. Further ones are "key=value".
func SafeArgs(further ...string) (args []string) {
	for _, o := range append(append([]string(nil), overrides...), further...) {
		args = append(args, "-c", o)
	}
	return args
}

// SafeEnv is the whole environment of such a git, but for PATH. home is where it may
// read the operator's configuration; "" for none.
func SafeEnv(home, gitDir, workTree string) []string {
	if home == "" {
		home = os.DevNull
	}
	return []string{
		"HOME=" + home, "LC_ALL=C", "GIT_DIR=" + gitDir, "GIT_WORK_TREE=" + workTree, "GIT_CONFIG_NOSYSTEM=1", "GIT_ATTR_NOSYSTEM=1",
		"GIT_OPTIONAL_LOCKS=0", "GIT_TERMINAL_PROMPT=0", "GIT_ALLOW_PROTOCOL=none", "GIT_NO_LAZY_FETCH=1", "GIT_NO_REPLACE_OBJECTS=1",
		"GIT_LITERAL_PATHSPECS=1", "GIT_FLUSH=1",
	}
}
