package upkeep

import (
	"testing"
	"time"

	"github.com/onefold-dev/onefold/internal/config"
)

// A rotation begins when the newest secret became valid, or verified its first
// delivery, or, where nobody knows, with this process.
func TestRotatedAt(t *testing.T) {
	t.Parallel()
	valid, used := time.Unix(1000, 0), time.Unix(2000, 0)
	u := &Upkeep{began: time.Unix(3000, 0)}
	for _, tt := range []struct {
		from, first, want time.Time
	}{{valid, used, valid}, {time.Time{}, used, used}, {time.Time{}, time.Time{}, u.began}} {
		if got := u.rotatedAt(config.SourceSecret{From: tt.from}, tt.first); !got.Equal(tt.want) {
			t.Errorf("valid from %v, first used %v: got %v, want %v", tt.from, tt.first, got, tt.want)
		}
	}
}
