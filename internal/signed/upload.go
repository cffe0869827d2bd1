package signed

import (
	"sync"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
)

// MaxArtifact is the longest file an artifact can be.
const MaxArtifact = 64<<20 + 256<<10 + 12

const (
	// MaxPiece is the most of an artifact that is handed over at once.
	MaxPiece = 4 << 20
	// uploadFor is how long an artifact that was handed over is held.
	uploadFor = 15 * time.Minute
	// maxUploads is how many are held at a time, and maxHeld how many bytes of them; one more
	// takes the place of the oldest. A small one of somebody who is still reading what it may
	// do is not put out by a few others.
	maxUploads = 64
	maxHeld    = 4 * MaxArtifact
)

// uploads are artifacts that were handed over and not installed. They are in memory only:
// after a restart they are handed over again.
type uploads struct {
	mu  sync.Mutex
	all map[string]*upload
}

type upload struct {
	size int
	data []byte
	at   int64
}

// Upload takes a piece of the file with a sha256, in order: offset is how much was taken
// before. It returns how much there is. Errors: Invalid if it is no piece of that file,
// Conflict with what was taken, Verification if the whole is another file.
func (l *Library) Upload(sha string, size, offset int, piece []byte) (have int, err error) {
	l.uploads.mu.Lock()
	defer l.uploads.mu.Unlock()
	now := l.d.DB.Time()
	switch {
	case len(sha) != 64:
		return 0, fault.New(fault.Invalid, "%q is no sha256 of a file", sha)
	case size <= 0 || size > MaxArtifact:
		return 0, fault.New(fault.Invalid, "an artifact has 1 to %d bytes, not %d", MaxArtifact, size)
	case len(piece) > MaxPiece:
		return 0, fault.New(fault.Invalid, "a piece has at most %d bytes, not %d", MaxPiece, len(piece))
	}
	u := l.uploads.of(sha, size, now)
	u.at = now
	if len(u.data) == size { // it is whole: handing it over again changes nothing
		return size, nil
	}
	if offset != len(u.data) || len(u.data)+len(piece) > size {
		return len(u.data), fault.New(fault.Conflict, "a piece at %d of %d bytes; %d were taken", offset, size, len(u.data))
	}
	u.data = append(u.data, piece...)
	if len(u.data) == size && Sum(u.data) != sha {
		delete(l.uploads.all, sha)
		return 0, fault.New(fault.Verification, "the file that was handed over has not the sha256 %s", sha)
	}
	return len(u.data), nil
}

// of is the upload of a file, begun if there is none.
func (s *uploads) of(sha string, size int, now int64) *upload {
	for key, u := range s.all {
		if now-u.at > uploadFor.Microseconds() || key == sha && u.size != size {
			delete(s.all, key)
		}
	}
	if u := s.all[sha]; u != nil {
		return u
	}
	for s.full(size) {
		s.dropOldest()
	}
	if s.all == nil {
		s.all = map[string]*upload{}
	}
	u := &upload{size: size}
	s.all[sha] = u
	return u
}

// full reports whether a file of some bytes has no room.
func (s *uploads) full(size int) bool {
	held := size
	for _, u := range s.all {
		held += u.size
	}
	return len(s.all) > 0 && (len(s.all) >= maxUploads || held > maxHeld)
}

func (s *uploads) dropOldest() {
	oldest := ""
	for key, u := range s.all {
		if oldest == "" || u.at < s.all[oldest].at {
			oldest = key
		}
	}
	delete(s.all, oldest)
}

// uploaded is a file that was handed over.
func (l *Library) uploaded(sha string) ([]byte, error) {
	l.uploads.mu.Lock()
	defer l.uploads.mu.Unlock()
	if u := l.uploads.all[sha]; u != nil && len(u.data) == u.size {
		return u.data, nil
	}
	return nil, fault.New(fault.NotFound, "no file with the sha256 %q was handed over", sha).WithHint("hand it over first: ombud loop inspect FILE")
}

// used lets go of a file.
func (l *Library) used(sha string) {
	l.uploads.mu.Lock()
	defer l.uploads.mu.Unlock()
	delete(l.uploads.all, sha)
}
