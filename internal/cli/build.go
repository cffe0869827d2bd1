package cli

import (
	"debug/elf"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
)

// build says which program this is.
type build struct {
	Version string `json:"version"`          // v1.2.3+<build id>, or devel+<build id>
	Go      string `json:"go"`               // go1.26.1
	System  string `json:"system"`           // linux/amd64
	Commit  string `json:"commit,omitempty"` // when it was built from a checkout
	Dirty   bool   `json:"dirty,omitempty"`  // the checkout had changes
}

// thisBuild reads it from the running executable. Two programs with the same
// Version were linked from the same code: that is how a command knows whether a
// running daemon is of its own kind.
func thisBuild() build {
	b := build{Version: "devel", Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		if v := info.Main.Version; v != "" && v != "(devel)" {
			b.Version, _, _ = strings.Cut(v, "+")
		}
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				b.Commit = s.Value
			case "vcs.modified":
				b.Dirty = s.Value == "true"
			}
		}
	}
	if id := buildID(); id != "" {
		b.Version += "+" + id
	}
	return b
}

// buildID returns a short form of the Go build id of the running executable, ""
// where it is not to be had. Only ELF keeps it in a place of its own.
func buildID() string {
	path, err := executable()
	if err != nil {
		return ""
	}
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	file, err := elf.NewFile(f)
	if err != nil {
		return ""
	}
	section := file.Section(".note.go.buildid")
	if section == nil {
		return ""
	}
	note, err := section.Data()
	if err != nil {
		return ""
	}
	return shortBuildID(note, file.ByteOrder.Uint32)
}

// shortBuildID takes the content hash, the last part of the id, out of an ELF
// note: name size, description size, type, "Go\0\0", description.
func shortBuildID(note []byte, number func([]byte) uint32) string {
	const head = 16
	if len(note) < head || string(note[12:15]) != "Go\x00" {
		return ""
	}
	length := number(note[4:8])
	if uint64(length) > uint64(len(note)-head) {
		return ""
	}
	id := string(note[head : head+int(length)])
	id = strings.Trim(id[strings.LastIndexByte(id, '/')+1:], "\x00")
	return id[:min(len(id), 12)]
}

// executable returns a path by which this very program can be run again, even if
// its file was removed or replaced meanwhile, as after `go run`.
func executable() (string, error) {
	if runtime.GOOS == "linux" {
		return "/proc/self/exe", nil
	}
	return os.Executable()
}
