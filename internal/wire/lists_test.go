package wire

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
)

func TestAListThatIsNilCrossesAsEmpty(t *testing.T) {
	t.Parallel()
	shared := Explanation{
		Run:       &Run{},
		Steps:     []RunStep{{Call: &Call{}}},
		Approvals: []Approval{{}},
	}
	frame, err := ResultFrame(requestID, shared)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"scopes", "reasons", "audit", "deliveries", "related", "left"} {
		if !bytes.Contains(frame, []byte(`"`+name+`":[]`)) {
			t.Errorf("%s is not []", name)
		}
	}
	if bytes.Contains(frame, []byte("null")) && !bytes.Contains(frame, []byte(`"data":null`)) {
		t.Errorf("null in %s", frame)
	}
	if shared.Steps[0].Call.Scopes != nil || shared.Approvals[0].Reasons != nil || shared.Left != nil {
		t.Error("the handler's own value was changed")
	}
}

func TestAFullValueCrossesUnchanged(t *testing.T) {
	t.Parallel()
	for _, m := range Methods() {
		v := reflect.New(m.Result).Elem()
		fill(v)
		plain, err := json.Marshal(v.Interface())
		if err != nil {
			t.Fatal(err)
		}
		filled, err := json.Marshal(withLists(v.Interface()))
		if err != nil || !bytes.Equal(plain, filled) {
			t.Errorf("%s: %s became %s, %v", m.Name, plain, filled, err)
		}
	}
}
