package deadletter

import "github.com/ombud-run/ombud/internal/eventlog"

// Way is one thing that can be done about a letter.
type Way struct{ Command, Does string }

// Ways says how to go on with a letter.
func Ways(d eventlog.DeadLetter) (out []Way) {
	look := map[eventlog.Source]Way{
		eventlog.FromSubscription: {"ombud explain " + d.Ref, "tells what led to the event"},
		eventlog.FromRun:          {"ombud runs show " + d.Ref, "shows its steps"},
		eventlog.FromDelivery:     {"ombud explain " + d.Ref, "tells what it is the answer to"},
	}[d.Source]
	if look.Command != "" {
		out = append(out, look)
	}
	if d.State != eventlog.LetterWaiting {
		if d.Run != "" && d.Run != d.Ref {
			out = append(out, Way{"ombud runs show " + d.Run, "shows the run that does it again"})
		}
		return out
	}
	again := "ombud dlq replay " + d.ID
	switch d.Source {
	case eventlog.FromSubscription:
		out = append(out, Way{again, "hands the event to " + d.Name + " again, out of order"})
	case eventlog.FromRun:
		out = append(out, Way{again, "goes on from the recorded steps; those that failed are begun again"},
			Way{again + " --fresh", "begins a new run with the same trigger and input"})
	case eventlog.FromDelivery:
		does := "sends it again"
		if d.Title == "uncertain" {
			does += ", marked as a possible repeat"
		}
		out = append(out, Way{again, does})
	}
	return append(out, Way{"ombud dlq drop " + d.ID, "lays it to rest"})
}
