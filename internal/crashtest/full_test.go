//go:build failpoint

package crashtest

import (
	"testing"

	"github.com/ombud-run/ombud/internal/db/dbtest"
)

// `make campaign` tries every pass.
const stride, twiceStride = 1, 1

func TestCampaignOnPostgres(t *testing.T) {
	supported(t)
	campaign(t, dbtest.KindPostgres, stride)
}
