package recipe

import (
	"embed"
	"path"
	"strings"

	"github.com/ombud-run/ombud/internal/fault"
)

//go:embed examples/*.yaml
var examples embed.FS

// Examples are the names of the examples.
func Examples() (names []string) {
	list, err := examples.ReadDir("examples")
	if err != nil {
		return nil // it is part of the program
	}
	for _, e := range list {
		names = append(names, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	return names
}

// Example is the text of an example.
func Example(name string) ([]byte, error) {
	text, err := examples.ReadFile(path.Join("examples", name+".yaml"))
	if err != nil {
		return nil, fault.New(fault.NotFound, "there is no example %q", clip(name)).WithHint("%s", nearFix(name, Examples()))
	}
	return text, nil
}
