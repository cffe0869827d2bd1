package wire

import (
	"encoding/json"
	"reflect"
)

// withLists returns a copy of v in which a list that has to be there and is nil
// is empty, so that it crosses the wire as [] and not as null. What v shares with
// its handler is copied before it is changed.
func withLists(v any) any {
	if v == nil || !hasLists(reflect.TypeOf(v)) {
		return v
	}
	out := reflect.New(reflect.TypeOf(v)).Elem()
	out.Set(reflect.ValueOf(v))
	fillLists(out)
	return out.Interface()
}

var rawType = reflect.TypeFor[json.RawMessage]()

// fillLists works on a value that belongs to it alone, down to the first
// pointer or slice, each of which it copies.
func fillLists(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for _, f := range v.Fields() {
			if f.Kind() == reflect.Slice && f.Type() != rawType && f.IsNil() {
				f.Set(reflect.MakeSlice(f.Type(), 0, 0)) // omitempty leaves an empty one out as well
				continue
			}
			fillLists(f)
		}
	case reflect.Pointer:
		if v.IsNil() || !hasLists(v.Type().Elem()) {
			return
		}
		own := reflect.New(v.Type().Elem())
		own.Elem().Set(v.Elem())
		fillLists(own.Elem())
		v.Set(own)
	case reflect.Slice:
		if v.IsNil() || !hasLists(v.Type().Elem()) {
			return
		}
		own := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		reflect.Copy(own, v)
		for i := range own.Len() {
			fillLists(own.Index(i))
		}
		v.Set(own)
	}
}

// hasLists reports whether a value of type t can hold a list. The messages of
// this package do not contain themselves.
func hasLists(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Slice:
		return t != rawType
	case reflect.Pointer:
		return hasLists(t.Elem())
	case reflect.Struct:
		for f := range t.Fields() {
			if hasLists(f.Type) {
				return true
			}
		}
	}
	return false
}
