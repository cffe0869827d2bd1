package confine

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

func git(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
}

func TestALinkedWorktreeHasItsRepository(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("no git")
	}
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	repo, tree := filepath.Join(base, "repo"), filepath.Join(base, "tree")
	git(t, base, "init", "-q", repo)
	git(t, repo, "commit", "-q", "--allow-empty", "-m", "first")
	git(t, repo, "worktree", "add", "-q", tree)
	if got := GitProfile(tree).Write; !slices.Equal(got, []string{tree, filepath.Join(repo, ".git")}) {
		t.Errorf("a worktree may change %v", got)
	}
	if got := GitProfile(repo).Write; !slices.Equal(got, []string{repo}) {
		t.Errorf("a repository may change %v", got)
	}
}

// A directory that only says it is a worktree widens nothing.
func TestAWorktreeCannotNameWhatItLikes(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	write := func(path, text string) {
		t.Helper()
		path = filepath.Join(base, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("home/.ssh/id_ed25519", "secret")
	write("evil/.git", "gitdir: "+base+"/home/.ssh\n")
	write("forged/.git", "gitdir: "+base+"/forged/own/worktrees/x\n")
	write("forged/own/worktrees/x/commondir", base+"/home\n")
	write("forged/own/worktrees/x/gitdir", base+"/forged/.git\n")
	write("other/.git", "gitdir: "+base+"/repo/.git/worktrees/x\n") // a worktree of somebody else's
	write("repo/.git/HEAD", "ref: refs/heads/main\n")
	write("repo/.git/objects/x", "")
	write("repo/.git/refs/x", "")
	write("repo/.git/worktrees/x/commondir", "../..\n")
	write("repo/.git/worktrees/x/gitdir", base+"/real/.git\n")
	write("real/.git", "gitdir: "+base+"/repo/.git/worktrees/x\n")
	for _, dir := range []string{"evil", "forged", "other", "home"} {
		if got := GitProfile(filepath.Join(base, dir)).Write; len(got) != 1 {
			t.Errorf("%s may change %v", dir, got)
		}
	}
	if got := GitProfile(filepath.Join(base, "real")).Write; len(got) != 2 {
		t.Errorf("a true one may change %v", got)
	}
}
