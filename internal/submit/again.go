package submit

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/onefold-dev/onefold/internal/store"
)

// Again runs a transaction of one act, and up to five times more, after short
// pauses, where Postgres rolls it back for a deadlock or a serialization failure.
func Again(ctx context.Context, once func() error) error {
	for try := 0; ; try++ {
		err := once()
		if try == 5 || !store.Retryable(err) || ctx.Err() != nil {
			return err
		}
		pause(ctx, rand.N(time.Duration(try+1)*5*time.Millisecond))
	}
}
