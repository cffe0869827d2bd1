package db_test

import (
	"flag"
	"os"
	"testing"
)

// TestMain turns the test binary into a child process when it is asked to be one.
func TestMain(m *testing.M) {
	if name := os.Getenv(childEnv); name != "" {
		os.Exit(runChild(name))
	}
	flag.Parse()
	// A round of the property has about a hundred transactions on a real disk.
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "rapid.checks" })
	if !chosen {
		if err := flag.Set("rapid.checks", "15"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
