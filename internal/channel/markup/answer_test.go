package markup

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write what the answer looks like now")

// TestAnAnswerLooksAsPeopleSawIt compares an answer as a model writes it with what was
// looked at and found good. {zw} stands for the zero-width space.
func TestAnAnswerLooksAsPeopleSawIt(t *testing.T) {
	t.Parallel()
	answer, err := os.ReadFile("testdata/answer.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range networks {
		t.Run(n.name, func(t *testing.T) {
			t.Parallel()
			var b strings.Builder
			for i, p := range n.render(string(answer)) {
				fmt.Fprintf(&b, "-- piece %d --\n%s\n", i+1, p.Text)
				for _, e := range p.Entities {
					fmt.Fprintf(&b, "%d+%d %s %s%s\n", e.Offset, e.Length, e.Type, e.URL, e.Language)
				}
				if p.Plain != "" {
					fmt.Fprintf(&b, "-- plain --\n%s\n", p.Plain)
				}
			}
			got := strings.ReplaceAll(b.String(), zwsp, "{zw}")
			file := "testdata/answer." + n.name + ".txt"
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}
