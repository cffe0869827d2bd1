//go:build wasip1

// Command own is a guest written with the kit of ombud's own.
package main

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/ombud-run/ombud/sdk/loop"
)

func init() {
	loop.Main(run)
	loop.Provide("double", func(_ *loop.Kit, input json.RawMessage) (any, error) {
		var in struct{ N int }
		if err := json.Unmarshal(input, &in); err != nil {
			return nil, err
		}
		if in.N < 0 {
			return nil, errors.New("too small")
		}
		return map[string]int{"twice": 2 * in.N}, nil
	})
}

func main() {}

func run(k *loop.Kit) error {
	token, err := loop.Step(k, "token", func() (string, error) {
		b := make([]byte, 8)
		_, err := rand.Read(b)
		return hex.EncodeToString(b), err
	})
	if err != nil {
		return err
	}
	k.Log(loop.Info, "token "+token, "kind", k.Trigger().Kind)
	answer, err := k.Ask("p")
	if err != nil {
		return err
	}
	k.Progress("asked", 1, 2)
	if err := k.Sleep(24 * time.Hour); err != nil {
		return err
	}
	if err := k.Notify("answer", fmt.Sprint(len(answer))); err != nil {
		return err
	}
	if _, err := k.Tool("shell.exec", nil); !errors.Is(err, loop.ErrRefused) {
		return fmt.Errorf("a tool that is not named: %v", err)
	} else {
		k.Log(loop.Warn, err.Error())
	}
	return k.After("again", time.Hour, map[string]string{"token": token})
}
