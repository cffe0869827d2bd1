package loops

import (
	"context"
	"encoding/json"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/tool"
)

// The tools behind short memory and the summaries of chats.
const (
	toolNote  = "kit.note"  // changes one
	toolNotes = "kit.notes" // reads one, or a group
)

// noteInput changes one entry. Agent is whose it is; "" for the loop's own.
type noteInput struct {
	Agent  string `json:"agent,omitempty"`
	Group  string `json:"group"`
	Key    string `json:"key"`
	Value  string `json:"value,omitempty"`
	TTL    int64  `json:"ttl_us,omitempty"` // 0 for good
	Forget bool   `json:"forget,omitempty"`
}

type notesInput struct {
	Agent string  `json:"agent,omitempty"`
	Group string  `json:"group"`
	Key   *string `json:"key,omitempty"` // nil for all of the group
}

// maxNotesRead bounds what is read at once, in bytes: a group, as text.
const maxNotesRead = 4 * maxNotesSize

// noteTools makes the tools of short memory from what all tools of kits have.
func (t Tools) noteTools(base tool.Definition) (write, read tool.Definition) {
	write, read = base, base
	write.Destination, read.Destination = nil, nil // it stays here
	write.Name, write.Description, write.Input = toolNote, "Keep or drop a note of one's own.", schemaOf("group", "key")
	write.Scopes = fixed("memory.write")
	write.Summary = summary(func(in noteInput) string {
		if in.Forget {
			return "forget the note " + tool.Show(in.Group+"/"+in.Key)
		}
		return "keep the note " + tool.Show(in.Group+"/"+in.Key)
	})
	read.Name, read.Description, read.Input = toolNotes, "Read notes of one's own.", schemaOf("group")
	read.Kind, read.ReadOnly, read.Repeat, read.MaxOutput = tool.Effect, true, tool.Repeatable, maxNotesRead
	read.Scopes = fixed("memory.read")
	read.Summary = summary(func(in notesInput) string { return "read notes of the group " + tool.Show(in.Group) })
	return write, read
}

// whose is the subject that notes belong to.
func whose(agent string, inv tool.Invocation) string {
	if agent != "" {
		return "agent:" + agent
	}
	return inv.Subject
}

func (t Tools) note(ctx context.Context, inv tool.Invocation) (tool.Output, error) {
	in, err := tool.Decode[noteInput](inv.Input)
	if err != nil {
		return tool.Output{}, err
	}
	subject := whose(in.Agent, inv)
	if in.Forget {
		grp, entry := t.d.noteKeys(subject, in.Group, in.Key)
		_, err := inv.Tx.Exec(ctx, "DELETE FROM loop_notes WHERE grp = $1 AND entry = $2", grp, entry)
		return tool.Output{}, err
	}
	expires := int64(0)
	if in.TTL > 0 {
		expires = inv.Tx.Now() + in.TTL
	}
	n := note{Group: in.Group, Key: in.Key, Value: guard.CleanText(in.Value), Label: label.Join(inv.Label, own())}
	return tool.Output{}, t.d.setNote(ctx, inv.Tx, subject, n, expires)
}

func (t Tools) notes(ctx context.Context, inv tool.Invocation) (out tool.Output, err error) {
	in, err := tool.Decode[notesInput](inv.Input)
	if err != nil {
		return out, err
	}
	var list []note
	err = t.d.DB.Read(ctx, func(ctx context.Context, q db.Q) error {
		list, err = t.d.loadNotes(ctx, q, whose(in.Agent, inv), in.Group, in.Key)
		return err
	})
	if err != nil {
		return out, err
	}
	l := own()
	for _, n := range list {
		l = label.Join(l, n.Label)
	}
	out.Label = &l
	out.JSON, err = json.Marshal(list)
	return out, err
}

// notes reads what is asked for as a step: what it was then it stays for the run.
func (k *Kit) notes(ctx context.Context, step string, in notesInput) (found []note, err error) {
	err = k.each(step, func(step string) error {
		got, err := k.within(ctx, step, toolNotes, in)
		if err != nil {
			return err
		}
		found = nil
		if err := json.Unmarshal([]byte(got.text), &found); err != nil {
			return fault.New(fault.Verification, "the notes of %s: %w", k.who.Subject, err)
		}
		for _, n := range found {
			k.saw(n.Label, n.Value)
		}
		return nil
	})
	return found, err
}

// The summary of a chat is a note of the agent's, so that what one loop keeps another finds.
const chatGroup, chatKey = "chat:", "summary"

// SaveChatSummary keeps the summary of a chat (an object), in the memory of the agent the
// loop works with.
func (k *Kit) SaveChatSummary(ctx context.Context, step, chat string, summary json.RawMessage) error {
	return k.plain(ctx, step, toolNote, noteInput{Agent: k.who.Agent, Group: chatGroup + chat, Key: chatKey, Value: string(summary)})
}

// ChatSummary returns what was kept of a chat, nil if nothing was.
func (k *Kit) ChatSummary(ctx context.Context, step, chat string) (summary json.RawMessage, err error) {
	key := chatKey
	notes, err := k.notes(ctx, step, notesInput{Agent: k.who.Agent, Group: chatGroup + chat, Key: &key})
	for _, n := range notes {
		summary = json.RawMessage(n.Value)
	}
	return summary, err
}

// OperatorChats are the chats of the operator that channels know: those of identities that
// were paired.
func (k *Kit) OperatorChats(ctx context.Context) ([]string, error) {
	if k.d.Chats == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return k.d.Chats(ctx)
}

// ReadJSON joins the label of what the run has read from elsewhere, such as its own record,
// and remembers others' words in it.
func (k *Kit) ReadJSON(l label.Label, raw json.RawMessage) { k.saw(l, texts(raw)...) }

// Done returns what a step came to, if it has come to a good end in any attempt.
func (k *Kit) Done(step string) (result json.RawMessage, done bool) {
	s, there := k.r.Recorded(k.nameOf(step))
	return s.Result, there && s.State == run.Done
}
