package wire

import (
	"encoding/json"
	"reflect"

	"github.com/ombud-run/ombud/internal/fault"
)

// Method says what the wire knows about one method; the typed descriptors Unary
// and Stream carry it, so that client, server and schema cannot disagree.
type Method struct {
	Name       string
	Doc        string
	Params     reflect.Type
	Notes      []NoteType // what a stream sends before its result, nil if it is none
	Result     reflect.Type
	Repeatable bool // sending it twice does no more than sending it once
	Builtin    bool // answered by the connection itself, not by a handler
	// Verbatim says why its answers leave the daemon as they are, "" if what is secret
	// in them is hidden, as it is nearly everywhere.
	Verbatim string
}

// NoteType is one kind of note a stream sends.
type NoteType struct {
	Name string
	Type reflect.Type
}

// Note is one message of a stream; NoteName is its method on the wire.
type Note interface{ NoteName() string }

// Unary is a method that answers once.
type Unary[Req, Resp any] struct{ Method }

// Stream is a method that sends notes, each a Note of the kinds it lists, and
// then answers.
type Stream[Req any, N Note, Resp any] struct{ Method }

// option changes a method while it is described.
type option func(*Method)

func repeatable(m *Method) { m.Repeatable = true }
func builtin(m *Method)    { m.Builtin = true }

func verbatim(why string) option { return func(m *Method) { m.Verbatim = why } }

// Reasons to answer verbatim. A signed text proves nothing once it is changed; what
// could be secret in it is hidden when it is written.
const (
	isSigned = "it is signed"
	toldOnce = "its answer is the one place where it is told"
)

func unary[Req, Resp any](name, doc string, opts ...option) Unary[Req, Resp] {
	m := Method{Name: name, Doc: doc, Params: reflect.TypeFor[Req](), Result: reflect.TypeFor[Resp]()}
	for _, o := range opts {
		o(&m)
	}
	return Unary[Req, Resp]{m}
}

// as returns the stream with options.
func (s Stream[Req, N, Resp]) as(opts ...option) Stream[Req, N, Resp] {
	for _, o := range opts {
		o(&s.Method)
	}
	return s
}

// stream describes a streaming method; kinds is a zero value of each note.
// Every stream is repeatable: watching changes nothing.
func stream[Req any, N Note, Resp any](name, doc string, kinds ...N) Stream[Req, N, Resp] {
	m := Method{Name: name, Doc: doc, Params: reflect.TypeFor[Req](), Result: reflect.TypeFor[Resp](), Repeatable: true}
	for _, k := range kinds {
		m.Notes = append(m.Notes, NoteType{k.NoteName(), reflect.TypeOf(k)})
	}
	return Stream[Req, N, Resp]{m}
}

// decodeNote returns the note of that name; ok is false for a kind this side
// does not know, which a client passes over.
func (s Stream[Req, N, Resp]) decodeNote(name string, raw json.RawMessage) (n N, ok bool, err error) {
	for _, kind := range s.Notes {
		if kind.Name != name {
			continue
		}
		v := reflect.New(kind.Type)
		if err := json.Unmarshal(raw, v.Interface()); err != nil {
			return n, false, fault.New(fault.Internal, "decode note %s of %s: %w", name, s.Name, err)
		}
		return v.Elem().Interface().(N), true, nil
	}
	return n, false, nil
}
