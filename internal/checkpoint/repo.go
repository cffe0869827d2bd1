package checkpoint

import (
	"crypto/sha1" //nolint:gosec // git's own names of contents
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/ombud-run/ombud/internal/confine"
)

// Limits of one checkpoint.
const (
	MaxFile   = 32 << 20  // bytes of one file; a bigger one is left out, by name
	maxFresh  = 128 << 20 // bytes of untracked files that have to be written
	maxRead   = 1 << 30   // bytes that have to be read
	maxFiles  = 200_000
	maxTime   = 10 * time.Second // of the checkpoint before a call, and again after it
	patience  = 2 * time.Minute  // of an undo
	backOff   = time.Minute      // how long a repository that took too long is left alone
	maxHidden = 50_000           // ignored files and directories that are known by name
	settled   = 2 * time.Second  // a file that was changed less than that before it was read is read again
)

// bounds are the limits in force.
type bounds struct {
	file, fresh, read int64
	files             int
	time              time.Duration
}

func usual() bounds {
	return bounds{file: MaxFile, fresh: maxFresh, read: maxRead, files: maxFiles, time: maxTime}
}

// generous are those of an undo, which somebody waits for.
func (b bounds) generous() bounds {
	b.fresh, b.read, b.time = 8*b.fresh, 8*b.read, patience
	return b
}

// Modes of the entries of a tree, as git writes them.
const (
	modeFile = 0o100644
	modeExec = 0o100755
	modeLink = 0o120000
	modeRepo = 0o160000
)

// entry is one path of a work tree. It does not change once it is made.
type entry struct {
	mode   uint32
	oid    string
	perm   os.FileMode
	stamp  stamp
	sure   bool // the stamp tells whether the file has changed
	stored bool // the object is in the repository
}

func (e *entry) same(o *entry) bool {
	return e == o || e != nil && o != nil && e.mode == o.mode && e.oid == o.oid
}

// repo is a repository with what is known of its work tree. Its lock is held while
// its tree is taken or its refs are changed.
type repo struct {
	place
	runner  Git
	home    string // the operator's, for their git configuration
	private string // a directory for our index of it
	refs    string // where our refs in it are
	owner   confine.Owner

	mu       sync.Mutex
	opened   bool
	files    map[string]*entry // the newest snapshot
	inIndex  map[string]*entry // what our index holds; nil: not known
	tree     string            // of our index
	tooSlow  time.Time         // when it took too long
	active   map[*kept]bool    // calls under way
	lastUsed time.Time

	lastMu sync.Mutex // innermost
	last   held       // the newest tree that has a ref
}

func (r *repo) newest() held {
	r.lastMu.Lock()
	defer r.lastMu.Unlock()
	return r.last
}

func (r *repo) setNewest(h held) {
	r.lastMu.Lock()
	defer r.lastMu.Unlock()
	r.last = h
}

// held is a tree and the ref that keeps it.
type held struct{ tree, ref string }

func (r *repo) index() string { return filepath.Join(r.private, "index") }

// hasher returns what names contents in the repository, told by the length of a name.
func hasher(oidLen int) hash.Hash {
	if oidLen == 2*sha256.Size {
		return sha256.New()
	}
	return sha1.New() //nolint:gosec // see the import
}

// blobName is the name git gives to a content of known size.
func blobName(content io.Reader, size int64, oidLen int) (string, error) {
	h := hasher(oidLen)
	_, _ = io.WriteString(h, "blob "+strconv.FormatInt(size, 10)+"\x00") // a hash takes everything
	n, err := io.Copy(h, content)
	if err == nil && n != size {
		err = io.ErrUnexpectedEOF
	}
	return hex.EncodeToString(h.Sum(nil)), err
}
