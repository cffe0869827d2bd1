package agent

import (
	"context"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/outbox"
)

// The guard against saying a thing twice: a model that lost the thread, or two pieces of
// work with the same news. KARMAX's bounds.
const (
	guardLast    = 15               // messages of the conversation that are compared
	guardSame    = 6 * time.Hour    // how long the same words are kept back
	guardAlike   = 10 * time.Minute // how long much the same words are
	guardWords   = 6                // words of weight that a text needs to be compared by them
	guardOverlap = 0.6              // of the shorter one's words
)

// saidBefore refuses a text that was said in the conversation a moment ago, in the same
// words or in much the same.
func (a *Agents) saidBefore(ctx context.Context, tx *db.Tx, m outbox.Message) error {
	last, err := a.Outbox.LastTx(ctx, tx, m.Conversation, guardLast)
	if err != nil {
		return err
	}
	plain, weight := normalWords(m.Text), heavyWords(m.Text)
	for _, it := range last {
		if it.Run == m.Run && (it.Text == m.Text || it.Ordinal == m.Ordinal) || it.State == outbox.Failed || it.State == outbox.Skipped {
			continue // the same message tried again, or one that did not arrive
		}
		age := time.Duration(tx.Now()-it.Queued) * time.Microsecond
		same := age < guardSame && plain == normalWords(it.Text)
		if !same && (age >= guardAlike || !alike(weight, heavyWords(it.Text))) {
			continue
		}
		how := "much the same"
		if same {
			how = "the same"
		}
		return fault.New(fault.Conflict, "%s was sent there %s ago: it is not sent again", how, age.Round(time.Second)).
			WithHint("say what is new, or leave it")
	}
	return nil
}

// normalWords is a text by its letters and digits alone.
func normalWords(text string) string {
	return strings.Join(strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsNumber(r) }), " ")
}

// light are long words that say little.
var light = map[string]bool{
	"that": true, "this": true, "with": true, "have": true, "from": true, "will": true, "your": true, "there": true, "would": true, "about": true,
	"been": true, "they": true, "what": true, "when": true, "here": true, "just": true, "also": true, "more": true, "were": true, "than": true,
	"then": true, "them": true, "some": true, "into": true, "which": true, "could": true, "should": true, "please": true, "hello": true,
}

// heavyWords are the words of a text that tell it from others.
func heavyWords(text string) map[string]bool {
	words := map[string]bool{}
	for w := range strings.FieldsSeq(normalWords(text)) {
		if utf8.RuneCountInString(w) >= 4 && !light[w] {
			words[w] = true
		}
	}
	return words
}

func alike(a, b map[string]bool) bool {
	if len(a) < guardWords || len(b) < guardWords {
		return false
	}
	both := 0
	for w := range a {
		if b[w] {
			both++
		}
	}
	return float64(both) >= guardOverlap*float64(min(len(a), len(b)))
}
