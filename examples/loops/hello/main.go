// Command hello is a loop that tells you that it ran.
package main

import "github.com/ombud-run/ombud/sdk/loop"

func init() { loop.Main(run) }

func main() {}

func run(k *loop.Kit) error {
	who, err := k.Config("who")
	if err != nil {
		return err
	}
	if who == "" {
		who = "world"
	}
	k.Log(loop.Info, "hello to "+who, "trigger", k.Trigger().Kind)
	return k.Notify("hello", "hello "+who)
}
