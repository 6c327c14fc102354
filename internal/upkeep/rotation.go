package upkeep

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/store"
)

// readRotation says of each source with more than one secret how far its senders
// have come, and how long they have had. The first secret in the configuration
// is the newest; one that is not valid yet begins no rotation.
func (u *Upkeep) readRotation(ctx context.Context, db store.DBTX) (out []prometheus.Metric, err error) {
	now := time.Now()
	uses, err := store.SecretUses(ctx, db, now.Add(-rotationOver))
	if err != nil {
		return nil, err
	}
	first, err := store.FirstSecretUses(ctx, db)
	if err != nil {
		return nil, err
	}
	for name, src := range u.Kinds.Config().Sources {
		if len(src.Secrets) < 2 || src.Secrets[0].From.After(now) {
			continue
		}
		newest := store.SecretUse{Source: name, Secret: src.Secrets[0].Name}
		total := int64(0)
		for use, n := range uses {
			if use.Source == name {
				total += n
			}
		}
		if total > 0 {
			out = append(out, rotation.Is(float64(uses[newest])/float64(total), name))
		}
		out = append(out, rotated.Is(now.Sub(u.rotatedAt(src.Secrets[0], first[newest])).Seconds(), name))
	}
	return out, nil
}

// rotatedAt is when the newest secret of a source came: when it became valid, or
// else verified its first delivery; where neither is known, when this process
// began.
func (u *Upkeep) rotatedAt(newest config.SourceSecret, first time.Time) time.Time {
	switch {
	case !newest.From.IsZero():
		return newest.From
	case !first.IsZero():
		return first
	}
	return u.began
}
