//go:build wasip1

// Command calls is a loop that makes as many host calls as its trigger's payload says.
package main

import (
	"encoding/json"

	"github.com/ombud-run/ombud/sdk/loop"
)

func init() { loop.Main(run) }

func main() {}

func run(k *loop.Kit) error {
	var p struct {
		Calls  int
		Recall bool
	}
	if err := json.Unmarshal(k.Trigger().Payload, &p); err != nil {
		return err
	}
	for range p.Calls {
		var err error
		if p.Recall {
			_, err = k.Recall("q", 1)
		} else {
			_, err = k.Config("key")
		}
		if err != nil {
			return err
		}
	}
	return nil
}
