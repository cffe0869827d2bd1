package channel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/channel/markup"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/outbox"
)

func TestAMessageGoesOutInPieces(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *site) {
		s.add(nil)
		it := s.ended(s.say("one two three", func(m *outbox.Message) { m.ReplyTo, m.Approval = "7", "apr_1" }))
		if it.State != outbox.Delivered || it.Ref != "ref one" {
			t.Fatalf("%+v", it)
		}
		for i, o := range s.net.sent {
			want := Outgoing{Place: Place{Chat: "chat1", Thread: "t"}, Key: fmt.Sprintf("%s/%d", it.ID, i), Piece: o.Piece}
			if i == 0 {
				want.ReplyTo = "7"
			}
			if i == 2 {
				want.Approval = "apr_1"
			}
			if fmt.Sprint(o) != fmt.Sprint(want) {
				t.Errorf("%+v, want %+v", o, want)
			}
		}
	})
}

// A piece that was refused for now is sent again, and none before it.
func TestARetryGoesOnWhereItStopped(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *site) {
		n := 0
		s.net.send = func(out Outgoing) (string, error) {
			if n++; n == 2 {
				return "", &outbox.RetryAfter{After: time.Millisecond, Err: fault.New(fault.Unavailable, "slow down")}
			}
			return "r", nil
		}
		s.add(nil)
		if it := s.ended(s.say("one two three", nil)); it.State != outbox.Delivered {
			t.Fatalf("%+v", it)
		}
		if got := s.net.texts(); !slices.Equal(got, []string{"one", "two", "three"}) {
			t.Error(got)
		}
	})
}

// A piece in doubt stops the message. A person's resend begins with that piece, and says
// that it may be a repeat.
func TestAPieceInDoubtIsNotSentAgainByItself(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *site) {
		broken := true
		s.net.send = func(out Outgoing) (string, error) {
			if out.Piece.Text == "two" && broken {
				return "", errors.New("the connection broke")
			}
			return "r", nil
		}
		s.add(nil)
		id := s.say("one two three", nil)
		if it := s.ended(id); it.State != outbox.Uncertain {
			t.Fatalf("%+v", it)
		}
		broken = false
		if _, err := s.Outbox.Decide(t.Context(), id, outbox.Resend, "operator", ""); err != nil {
			t.Fatal(err)
		}
		if it := s.ended(id); it.State != outbox.Delivered || !it.PossibleRepeat {
			t.Fatalf("%+v", it)
		}
		if got := s.net.texts(); !slices.Equal(got, []string{"one", "two", "three"}) {
			t.Errorf("%+v", s.net.sent)
		}
	})
}

// What the network says later of a piece settles it.
func TestWhatArrivedIsSettledLate(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *site) {
		s.net.send = func(Outgoing) (string, error) { return "", errors.New("the connection broke") }
		s.add(nil)
		id := s.say("one", nil)
		if it := s.ended(id); it.State != outbox.Uncertain {
			t.Fatalf("%+v", it)
		}
		for _, key := range []string{"", "x", id, id + "/x", id + "/7", "obx_none/0"} {
			if err := s.net.intake().Arrived(t.Context(), key, "9"); err != nil || s.item(id).State != outbox.Uncertain {
				t.Errorf("%q: %v", key, err)
			}
		}
		if err := s.net.intake().Arrived(t.Context(), id+"/0", "9"); err != nil || s.item(id).State != outbox.Delivered {
			t.Errorf("%v %+v", err, s.item(id))
		}
	})
}

// A message that the network finds by its words is not taken for another that said the same.
func TestTheSameWordsAreNotTakenForEachOther(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		broken := false
		n := &network{probe: func(Outgoing) (outbox.Answer, string, error) { return outbox.Happened, "ref of ok", nil }}
		n.send = func(Outgoing) (string, error) {
			if broken {
				return "", errors.New("the connection broke")
			}
			return "ref of ok", nil
		}
		s := newSite(t, d, n)
		s.add(nil)
		s.ended(s.say("ok", nil))
		broken = true
		second := s.say("ok", func(m *outbox.Message) { m.Run = "run_2" })
		if it := s.ended(second); it.State != outbox.Uncertain {
			t.Errorf("%+v", it)
		}
	})
}

// What cannot be sent while the channel is in trouble waits for its end; else it is tried so
// often and given up.
func TestWhatATroubledChannelCannotSendWaits(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *site) {
		s.net.send = func(Outgoing) (string, error) { return "", fault.New(fault.Unavailable, "not reached") }
		s.add(nil)
		id := s.say("one", nil)
		s.until("it was tried", func() bool { return s.item(id).Error != "" })
		s.Outbox.Stop()
		l, err := s.line("net")
		if err != nil {
			t.Fatal(err)
		}
		it := s.item(id)
		for trouble, want := range map[error]time.Duration{nil: 0, errors.New("away"): time.Minute} {
			l.mu.Lock()
			l.deaf, l.mute, l.fails = trouble, nil, 0 // several in a row are trouble by themselves
			l.mu.Unlock()
			it.Attempts = 30
			_, err := l.Send(t.Context(), it)
			if after, _ := outbox.Wait(err); after != want || !fault.Is(err, fault.Unavailable) {
				t.Errorf("in trouble by %v: it waits %s, %v", trouble, after, err)
			}
		}
	})
}

// A report may come before the answer to the send that it is about, and the answer be lost.
func TestWhatWasReportedBeforeItsAnswerIsNotInDoubt(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *site) {
		s.net.send = func(out Outgoing) (string, error) {
			if out.Piece.Text != "one" {
				return "r", nil
			}
			if err := s.net.intake().Arrived(context.Background(), out.Key, "9"); err != nil {
				t.Error(err)
			}
			return "", errors.New("the connection broke")
		}
		s.add(nil)
		if it := s.ended(s.say("one two", nil)); it.State != outbox.Delivered || it.Ref != "9" || it.PossibleRepeat {
			t.Errorf("%+v", it)
		}
	})
}

// Once nothing is in doubt any more the rest goes out, and nothing of it is a repeat.
func TestTheRestGoesOutWhenTheDoubtIsOver(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *site) {
		s.net.send = func(out Outgoing) (string, error) {
			if out.Piece.Text == "two" {
				return "", errors.New("the connection broke")
			}
			return "r", nil
		}
		s.add(nil)
		id := s.say("one two three", nil)
		if it := s.ended(id); it.State != outbox.Uncertain {
			t.Fatalf("%+v", it)
		}
		if err := s.net.intake().Arrived(t.Context(), id+"/1", "9"); err != nil {
			t.Fatal(err)
		}
		s.until("the rest went out", func() bool { return s.item(id).State == outbox.Delivered })
		if it, got := s.item(id), s.net.texts(); it.PossibleRepeat || !slices.Equal(got, []string{"one", "three"}) {
			t.Errorf("%+v, sent %q", it, got)
		}
	})
}

// What the network took and did not deliver is a failure that is told; a resend sends that
// piece alone.
func TestWhatIsLostAfterwardsFails(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *site) {
		refs := map[string]string{"one": "1", "two": "2"}
		s.net.send = func(out Outgoing) (string, error) { return refs[out.Piece.Text], nil }
		s.add(nil)
		id := s.say("one two", nil)
		s.ended(id)
		lost := func(key, ref string) {
			t.Helper()
			if err := s.net.intake().Lost(t.Context(), key, ref, "code 131047: too late"); err != nil {
				t.Errorf("%s %s: %v", key, ref, err)
			}
		}
		for _, bad := range [][2]string{{"x", "2"}, {"obx_none/0", "2"}, {id + "/1", "1"}, {id + "/1", ""}, {id + "/7", "2"}} {
			lost(bad[0], bad[1])
		}
		if it := s.item(id); it.State != outbox.Delivered {
			t.Fatalf("%+v", it)
		}
		lost(id+"/1", "2")
		if it := s.item(id); it.State != outbox.Failed || !strings.Contains(it.Error, "too late") {
			t.Fatalf("%+v", it)
		}
		refs["two"] = "3"
		if _, err := s.Outbox.Decide(t.Context(), id, outbox.Resend, "operator", ""); err != nil {
			t.Fatal(err)
		}
		s.until("it was sent again", func() bool { return s.item(id).State == outbox.Delivered })
		lost(id+"/1", "2") // the same report once more is of the try before
		if it, got := s.item(id), s.net.texts(); it.State != outbox.Delivered || !slices.Equal(got, []string{"one", "two", "two"}) {
			t.Errorf("%+v, sent %q", it, got)
		}
	})
}

func TestWhatNobodyWaitsForIsKeptBack(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *site) {
		s.add(map[string]string{"away": "on"})
		kept := s.say("news", func(m *outbox.Message) { m.Unasked = true })
		s.until("it was tried", func() bool { return s.item(kept).Error != "" })
		if it := s.ended(s.say("answer", nil)); it.State != outbox.Delivered { // in the same chat
			t.Errorf("%+v", it)
		}
		if it := s.item(kept); it.State != outbox.Queued || it.Attempts != 0 || !strings.Contains(it.Error, "quiet hours") {
			t.Errorf("%+v", it)
		}
	})
}

// A message that was begun is said to its end, also when quiet hours begin meanwhile.
func TestWhatWasBegunIsNotLeftHalfSaid(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *site) {
		s.net.send = func(out Outgoing) (string, error) {
			if out.Piece.Text == "one" {
				return "r", nil
			}
			if i, err := s.Get("net"); err != nil || !i.Settings.Away {
				_, err = s.Set(context.Background(), Change{Name: "net", Values: []string{"away=on"}}, "operator")
				return "", fault.New(fault.Unavailable, "not now: %w", err)
			}
			return "r", nil
		}
		s.add(nil)
		if it := s.ended(s.say("one two", func(m *outbox.Message) { m.Unasked = true })); it.State != outbox.Delivered {
			t.Errorf("%+v", it)
		}
	})
}

// The network counts each piece of a message; what is over waits, and goes on where it stopped.
func TestEachPieceCounts(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *site) {
		refused := false
		s.net.send = func(out Outgoing) (string, error) {
			if out.Piece.Text == "two" && !refused {
				refused = true // it does not count
				return "", &outbox.RetryAfter{After: time.Millisecond, Err: fault.New(fault.Unavailable, "slow down")}
			}
			return "r", nil
		}
		s.add(map[string]string{"rate": "3"})
		id := s.say("one two three four five", nil)
		s.until("it waits", func() bool { return strings.Contains(s.item(id).Error, "a minute go to one chat") })
		if got := s.net.texts(); !slices.Equal(got, []string{"one", "two", "three"}) {
			t.Errorf("sent %q", got)
		}
		if it := s.item(id); it.State != outbox.Queued || it.NextAt <= s.db.Time() {
			t.Errorf("%+v", it)
		}
	})
}

func TestOneChatGetsSoManyMessagesAMinute(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *site) {
		s.add(map[string]string{"rate": "2"})
		s.ended(s.say("one", nil))
		s.ended(s.say("two", nil))
		third := s.say("three", nil)
		other := s.say("else", func(m *outbox.Message) { m.Conversation = "chat2" })
		if it := s.ended(other); it.State != outbox.Delivered {
			t.Errorf("another chat waits too: %+v", it)
		}
		s.until("it was tried", func() bool { return s.item(third).Error != "" })
		if it := s.item(third); it.State != outbox.Queued || it.NextAt <= s.db.Time() {
			t.Errorf("%+v", it)
		}
	})
}

// What waits is failed by the commit that removes its channel, and shown.
func TestWhatWaitsForARemovedChannelFailsWithIt(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *site) {
		s.add(nil)
		if _, err := s.Pause(t.Context(), "net", "operator"); err != nil {
			t.Fatal(err)
		}
		ids := []string{s.say("one", nil), s.say("two", nil), s.say("else", func(m *outbox.Message) { m.Conversation = "chat2" })}
		s.until("all were tried", func() bool { return s.item(ids[0]).Error != "" && s.item(ids[2]).Error != "" })
		s.Outbox.Stop() // nothing is tried any more
		if err := s.Remove(t.Context(), "net", "operator"); err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			if it := s.item(id); it.State != outbox.Failed || it.ErrorClass != fault.Denied || !strings.Contains(it.Error, "removed") {
				t.Errorf("%+v", it)
			}
		}
		var letters int64
		err := s.db.Read(t.Context(), func(ctx context.Context, q db.Q) error {
			return q.QueryRow(ctx, "SELECT count(*) FROM dead_letters WHERE name = 'net'").Scan(&letters)
		})
		if err != nil || letters != 3 {
			t.Errorf("%d dead letters, %v", letters, err)
		}
	})
}

// life is what a victim does: it sends the one message of a store, and dies at a place.
type life struct {
	DSN, Net string // Net is the file that stands for the network: a line for each piece
	Piece    int    // at which piece it dies
	After    bool   // when the network has it, else before
	Tell     bool   // the network can tell what became of a piece
}

func victim(spec string) int {
	var l life
	err := json.Unmarshal([]byte(spec), &l)
	if err == nil {
		err = l.live(context.Background())
	}
	fmt.Fprintln(os.Stderr, "it was not killed:", err)
	return 4
}

// fileNetwork keeps what it gets in a file, by key.
func (l life) fileNetwork(die func(at int, after bool)) *network {
	n := &network{}
	n.send = func(out Outgoing) (string, error) {
		_, at, _ := keyParts(out.Key)
		die(at, false)
		f, err := os.OpenFile(l.Net, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return "", err
		}
		_, err = fmt.Fprintf(f, "%s %s\n", out.Key, out.Piece.Text)
		if err = errors.Join(err, f.Close()); err != nil {
			return "", err
		}
		die(at, true)
		return "ref " + out.Piece.Text, nil
	}
	if l.Tell {
		n.probe = func(out Outgoing) (outbox.Answer, string, error) {
			data, err := os.ReadFile(l.Net)
			if errors.Is(err, os.ErrNotExist) {
				err = nil
			}
			if strings.Contains(string(data), out.Key+" ") {
				return outbox.Happened, "ref " + out.Piece.Text, err
			}
			return outbox.DidNotHappen, "", err
		}
	}
	return n
}

func (l life) live(ctx context.Context) error {
	d, err := db.Open(ctx, db.Options{DSN: l.DSN})
	if err != nil {
		return err
	}
	s, err := assemble(d, l.fileNetwork(func(at int, after bool) {
		if at == l.Piece && after == l.After {
			if p, err := os.FindProcess(os.Getpid()); err == nil {
				_ = p.Kill()
			}
			select {} // it comes at once
		}
	}), os.Stderr)
	if err != nil {
		return err
	}
	if err := errors.Join(s.book.Start(ctx), s.Open(ctx), s.Outbox.Start(ctx)); err != nil {
		return err
	}
	<-time.After(20 * time.Second)
	return errors.New("nothing was sent")
}

// TestAKillAtAnySendLosesAndDoublesNothing kills a process right before and right after the
// network gets each piece of a message. Where the network can tell, the next life sends the
// rest, each piece once; where it cannot, the message is shown as uncertain, and no piece is
// sent again by itself.
func TestAKillAtAnySendLosesAndDoublesNothing(t *testing.T) {
	t.Parallel()
	for _, kind := range dbtest.Kinds() {
		for piece := range 3 {
			for _, after := range []bool{false, true} {
				for _, tell := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s/piece=%d/after=%v/tell=%v", kind, piece, after, tell), func(t *testing.T) {
						t.Parallel()
						killed(t, kind, life{Piece: piece, After: after, Tell: tell})
					})
				}
			}
		}
	}
}

func killed(t *testing.T, kind dbtest.Kind, l life) {
	l.DSN, l.Net = dbtest.DSN(t, kind), filepath.Join(t.TempDir(), "net")
	d, err := db.Open(t.Context(), db.Options{DSN: l.DSN})
	if err != nil {
		t.Fatal(err)
	}
	before, err := assemble(d, &network{}, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	before.t = t
	if err := before.book.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := before.Add(t.Context(), Adding{Kind: "net", Secrets: map[string]string{"token": "x"}}, "operator"); err != nil {
		t.Fatal(err)
	}
	id := before.say("one two three", nil)
	if err := errors.Join(before.book.Stop(t.Context()), d.Close()); err != nil {
		t.Fatal(err)
	}
	spec, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asVictim+"="+string(spec))
	cmd.Stderr = t.Output()
	if err := cmd.Run(); err == nil || cmd.ProcessState == nil || cmd.ProcessState.ExitCode() >= 0 {
		t.Fatalf("it was to be killed: %v", err)
	}
	d = dbtest.Open(t, db.Options{DSN: l.DSN})
	if d.Postgres() { // its lease on the send has to end
		err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			_, err := tx.Exec(ctx, "UPDATE outbox SET lease = 0")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	s := newSite(t, d, l.fileNetwork(func(int, bool) {}))
	it := s.ended(id)
	want, lines := outbox.Delivered, []string{"one", "two", "three"}
	if !l.Tell {
		want, lines = outbox.Uncertain, lines[:l.Piece]
		if l.After {
			lines = []string{"one", "two", "three"}[:l.Piece+1]
		}
	}
	data, err := os.ReadFile(l.Net)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(string(data)) {
		got = append(got, strings.Fields(line)[1])
	}
	if it.State != want || !slices.Equal(got, lines) {
		t.Errorf("the item is %s, the network has %q; want %s and %q", it.State, got, want, lines)
	}
}

// A channel that speaks for another account now leaves the conversations of the first alone.
func TestAnotherAccountSaysNothingInTheConversationsOfTheFirst(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *site) {
		s.add(nil)
		s.net.intake().Up(Me{ID: "you", Name: "@you"})
		id := s.say("waits", nil)
		if it := s.ended(id); it.State != outbox.Failed || !strings.Contains(it.Error, "channel net is you now") || len(s.net.texts()) != 0 {
			t.Errorf("%s %s, sent %q", it.State, it.Error, s.net.texts())
		}
	})
}

// What went out long ago needs no parts any more, those of previews neither.
func TestOldPartsAreForgotten(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *site) {
		s.add(nil)
		old, young := s.ended(s.say("old", nil)).ID, s.ended(s.say("young", nil)).ID
		for _, run := range []string{"run_old", "run_young"} {
			if _, err := s.keepPieces(t.Context(), previewItem(run), []markup.Piece{{Text: "…"}}); err != nil {
				t.Fatal(err)
			}
		}
		err := s.db.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			_, err := tx.Exec(ctx, "UPDATE channel_pieces SET at = at - $1 WHERE item IN ($2, $3)", int64(31*24*3600*1e6), old, previewItem("run_old"))
			return err
		})
		if err := errors.Join(err, s.Forget(t.Context())); err != nil {
			t.Fatal(err)
		}
		for item, want := range map[string]int{old: 0, young: 1, previewItem("run_old"): 0, previewItem("run_young"): 1} {
			if list, err := s.readPieces(t.Context(), item); err != nil || len(list) != want {
				t.Errorf("%s has %d parts, %v", item, len(list), err)
			}
		}
	})
}
