//go:build failpoint

package crashtest

import (
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/db/dbtest"
)

// `make campaign` tries every pass.
const stride, twiceStride = 1, 1

const (
	heldKills  = 50
	heldWithin = 3 * time.Second
)

func TestCampaignOnPostgres(t *testing.T) {
	supported(t)
	campaign(t, dbtest.KindPostgres, stride)
}
