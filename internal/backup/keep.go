package backup

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
)

// Extension ends the names of backups that are named by ombud.
const Extension = ".ombud-backup"

// stamp is how their time is written, so that names sort by it and no two backups of
// an instance, one after the other, share one.
const stamp = "20060102T150405.000Z"

// Stamp is a time in names of backups and of what they replace.
func Stamp(at time.Time) string { return at.UTC().Format(stamp) }

// NameIn is the path of a new backup in a directory.
func NameIn(dir, instance string, at time.Time) string {
	return filepath.Join(dir, fmt.Sprintf("ombud-%s-%s%s", instance, Stamp(at), Extension))
}

// Prune removes all but the newest n backups of an instance in a directory, by their
// names, and returns what it removed. Anything that is not named by NameIn, or does
// not begin as a backup does, is left alone.
func Prune(dir, instance string, n int) (removed []string, err error) {
	if n < 1 {
		return nil, fault.New(fault.Usage, "keep %d backups: at least one", n)
	}
	named := regexp.MustCompile(`^ombud-` + regexp.QuoteMeta(instance) + `-[0-9]{8}T[0-9]{6}\.[0-9]{3}Z` + regexp.QuoteMeta(Extension) + `$`)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, readFault(err)
	}
	var names []string
	for _, e := range entries {
		if e.Type().IsRegular() && named.MatchString(e.Name()) && begins(filepath.Join(dir, e.Name())) {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	for len(names) > n {
		path := filepath.Join(dir, names[0])
		if err := os.Remove(path); err != nil {
			return removed, fault.New(fault.Permission, "remove an old backup: %w", err)
		}
		removed, names = append(removed, path), names[1:]
	}
	return removed, nil
}

// begins reports whether a file starts as a backup does.
func begins(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	s := &scanner{r: f}
	name, _, err := s.next()
	return err == nil && name == partReadme
}
