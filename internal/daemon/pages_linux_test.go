package daemon

import (
	"strings"
	"testing"
)

// TestPagesOfTheProgramAreGivenBack: much less of it is mapped afterwards, and it goes on.
// It is not parallel: what other tests run is mapped again.
func TestPagesOfTheProgramAreGivenBack(t *testing.T) {
	resident := func() (kb int) {
		list, err := mappings()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range list {
			if strings.HasPrefix(m.mode, "r-x") && m.anonymous == 0 {
				kb += m.resident
			}
		}
		return kb
	}
	before := resident()
	if before < 1<<10 {
		t.Skipf("%d kB of this program are mapped: a system that counts otherwise", before)
	}
	if err := unmapPages(); err != nil {
		t.Fatal(err)
	}
	if after := resident(); after > before*3/4 {
		t.Errorf("%d kB of the program were mapped and %d still are", before, after)
	}
}
