package signed

import "testing"

// TestAnInstallPutsADamagedLoopInOrder: "loop verify" says that it does.
func TestAnInstallPutsADamagedLoopInOrder(t *testing.T) {
	t.Parallel()
	onShelves(t, func(t *testing.T, s *shelf) {
		data := hello(t, "1.0.0", nil)
		x := s.install(data)
		if _, err := s.Set(t.Context(), Change{Name: "hello", By: "operator", Set: map[string]string{"greeting": "hej"}}); err != nil {
			t.Fatal(err)
		}
		for what, damage := range map[string]string{
			"a changed piece": "UPDATE signed_pieces SET data = $1 WHERE sha = $2",
			"a lost piece":    "DELETE FROM signed_pieces WHERE $1 = $1 AND sha = $2",
			"a lost file":     "DELETE FROM signed_artifacts WHERE $1 = $1 AND sha = $2",
		} {
			if p, err := s.Inspect(t.Context(), s.hand(data)); err != nil || !p.Same || p.Repairs {
				t.Fatalf("%s: before it: %+v %v", what, p, err)
			}
			s.exec(damage, []byte("no piece"), x.SHA256)
			p, err := s.Inspect(t.Context(), s.hand(data))
			if err != nil || p.Same || !p.Repairs {
				t.Fatalf("%s: same %v, repairs %v, %v", what, p.Same, p.Repairs, err)
			}
			s.has(p.Warnings, "is damaged, and this puts it in order")
			s.install(data)
			v, err := s.Verify(t.Context(), "hello")
			if err != nil || v[0].Installed.Problem != nil || v[0].Problem != nil {
				t.Errorf("%s: %+v %v", what, v, err)
			}
			if got := v[0].Settings.Values["greeting"]; got != "hej" {
				t.Errorf("%s: its setting is %q", what, got)
			}
		}
		s.exec("UPDATE signed_loops SET body = $1 WHERE sha = $2", []byte("no body"), x.SHA256)
		s.install(data)
		if v, err := s.Verify(t.Context(), "hello"); err != nil || v[0].Problem != nil {
			t.Errorf("a changed row: %+v %v", v, err)
		}
	})
}
