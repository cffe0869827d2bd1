package act

import (
	"context"
	"strings"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/scope"
)

// Secrets says which secrets there are. It gives none of them.
type Secrets interface {
	Check(ctx context.Context, name string) error
}

// holdsSecret refuses an input in which the value of a secret itself stands. Nobody
// who may use a secret needs its value: they name it. So the value in an input is a
// leak on its way out, or a guess, and with the value taken out it would be another
// call than the one that was meant. It is refused before the input is looked at, so
// that neither scopes nor a summary nor a question to a person repeat it.
func (a *Act) holdsSecret(input []byte) error {
	name := a.Hide.Find(input)
	if name == "" {
		return nil
	}
	return fault.New(fault.Denied, "the input holds the value of the secret %s; no tool is called with it", name).
		WithHint("name it instead, as {{secret:NAME}}, where the tool takes that")
}

// secretsThere refuses a call that names a secret which is not there.
func (a *Act) secretsThere(ctx context.Context, k *call) error {
	for _, s := range k.scopes {
		name, is := secretName(s)
		if !is {
			continue
		}
		if a.Secrets == nil {
			return fault.New(fault.NotFound, "there is no secret %s", name)
		}
		if err := a.Secrets.Check(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// secretName is the one secret a scope is about.
func secretName(s scope.Scope) (string, bool) {
	if s.Base() != scope.Must("secret").Base() || !s.Qualified() {
		return "", false
	}
	_, name, _ := strings.Cut(s.String(), ":")
	return name, !strings.Contains(name, "*")
}
