package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/wire"
)

func TestAnExplanationSaysByWhatOmbudWasAddressed(t *testing.T) {
	t.Parallel()
	for data, want := range map[string]string{
		`{"content":"hello","addressed":"mentioned"}`:         "addressed: mentioned",
		`{"content":"hello","overheard":true}`:                "overheard",
		`{"content":"hello","addressed":"a\u001b[2Jb"}`:       "addressed: a",
		`{"content":"hello"}`:                                 "",
		`{"addressed":7}`:                                     "",
		`not json`:                                            "",
		`{"content":"hello","addressed":"","overheard":null}`: "",
	} {
		got := addressed(wire.Event{Data: json.RawMessage(data)})
		if !strings.HasPrefix(got, want) || (want == "") != (got == "") || strings.ContainsRune(got, 0x1b) {
			t.Errorf("%s: %q, want %q", data, got, want)
		}
	}
}
