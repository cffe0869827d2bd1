package confine

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestAroundLeavesOutExactlyWhatIsHidden: of every file below a directory, those that
// are hidden are not within what is left, and no link is.
func TestAroundLeavesOutExactlyWhatIsHidden(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	var files []string
	for _, name := range []string{"a/1", "a/b/2", "a/b/c/3", "a/d/4", "e/5", "6"} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		files = append(files, path)
	}
	if err := os.Symlink("/", filepath.Join(root, "a/link")); err != nil {
		t.Fatal(err)
	}
	candidates := []string{root, root + "/a", root + "/a/b", root + "/a/b/c", root + "/a/d", root + "/e", root + "/6", root + "/a/1", "/elsewhere"}
	rapid.Check(t, func(t *rapid.T) {
		hide := rapid.SliceOfDistinct(rapid.SampledFrom(candidates[1:]), rapid.ID[string]).Draw(t, "hide")
		left := around(root, hide)
		for _, f := range files {
			if got, want := anyWithin(f, left), !anyWithin(f, hide); got != want {
				t.Fatalf("%s is reached: %v; left is %v", f, got, left)
			}
		}
		if slices.ContainsFunc(left, func(p string) bool { return strings.HasSuffix(p, "link") }) {
			t.Fatalf("a link is in %v", left)
		}
	})
}

func TestPathsAreComparedByTheirParts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		path, dir string
		want      bool
	}{
		{"/a", "/a", true}, {"/a/b", "/a", true}, {"/ab", "/a", false}, {"/", "/a", false}, {"/a", "/", true}, {"/a", "/a/b", false},
	} {
		if got := within(c.path, c.dir); got != c.want {
			t.Errorf("within(%s, %s) = %v", c.path, c.dir, got)
		}
	}
}

func TestTheLongerNameDecidesWhatIsHidden(t *testing.T) {
	t.Parallel()
	r := &reach{write: []string{"/home/u", "/state/work"}, hide: []string{"/state", "/home/u/keys"}}
	for path, want := range map[string]bool{
		"/state/db": true, "/state/work/x": false, "/home/u/x": false, "/home/u/keys/k": true, "/home/u/keys": true, "/etc/x": false,
	} {
		if got := r.hidden(path); got != want {
			t.Errorf("%s is hidden: %v", path, got)
		}
	}
}

// As root, what the system keeps for root is not part of what a job reads.
func TestSettingsForRootAloneAreLeftOut(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for name, mode := range map[string]os.FileMode{
		"open/a": 0o644, "open/b": 0o644, "mixed/a": 0o644, "mixed/secret": 0o600, "shadow": 0o640, "hosts": 0o644, "closed/a": 0o644,
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(root, "closed"), 0o750); err != nil {
		t.Fatal(err)
	}
	parts, whole := openTo(root, 8)
	slices.Sort(parts)
	want := []string{root + "/hosts", root + "/mixed/a", root + "/open"}
	if whole || !slices.Equal(parts, want) {
		t.Errorf("%v, %v", parts, whole)
	}
}

func TestKernelVersionsAreCompared(t *testing.T) {
	t.Parallel()
	for release, want := range map[string]bool{
		"6.14.0": true, "6.14": true, "6.14-rc1": true, "6.18.44-fc-v657": true, "7.0.1": true, "6.13.9": false, "5.15.0-91-generic": false, "": false, "x": false, "6": false,
	} {
		if got := atLeast(release, 6, 14); got != want {
			t.Errorf("%q: %v", release, got)
		}
	}
}
