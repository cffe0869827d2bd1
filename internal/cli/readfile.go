package cli

import (
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/ombud-run/ombud/internal/fault"
)

// readFile reads a file that a person names, and no more of it than shows that it has more
// than most bytes. Its error has NotFound if there is none, Usage if it is no file.
func readFile(path string, most int64) (data []byte, err error) {
	info, err := os.Stat(path) // the opening of a pipe waits for who writes into it
	switch {
	case err == nil && info.IsDir():
		return nil, fault.New(fault.Usage, "%s is a directory", path)
	case err == nil && !info.Mode().IsRegular():
		return nil, fault.New(fault.Usage, "%s is no regular file", path)
	}
	var f *os.File
	if err == nil {
		f, err = os.Open(path) //nolint:gosec // the person names it
	}
	if err == nil {
		defer func() { err = errors.Join(err, f.Close()) }()
		data, err = io.ReadAll(io.LimitReader(f, most+1))
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fault.New(fault.NotFound, "there is no %s", path)
	case errors.Is(err, fs.ErrPermission):
		return nil, fault.New(fault.Permission, "%w", err)
	case err != nil:
		return nil, fault.New(fault.Unavailable, "%w", err)
	}
	return data, nil
}

// readPart reads a file that has at most so many bytes.
func readPart(path string, most int64) ([]byte, error) {
	data, err := readFile(path, most)
	if err == nil && int64(len(data)) > most {
		return nil, fault.New(fault.Invalid, "%s has more than %s, the most that is read", path, size(most))
	}
	return data, err
}
