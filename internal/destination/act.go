package destination

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/canon"
	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/egress"
	"github.com/onefold-dev/onefold/internal/gate"
	"github.com/onefold-dev/onefold/internal/seal"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/telemetry"
)

// DefaultOverlap is how long a secret that was replaced signs on (design section 8).
const DefaultOverlap = 7 * 24 * time.Hour

const (
	maxOverlap = 90 * 24 * time.Hour
	maxSigners = 4 // signatures in one header
)

// Act is who does something to a destination, and why.
type Act struct {
	Name      string
	Actor     string
	Reason    string
	RequestID string
}

// Put is a destination that was made or changed.
type Put struct {
	Created bool
	// Secret signs from now on, where it was made here; empty otherwise. It is told this once.
	Secret telemetry.Secret
}

// fields are those of a body that are no fields of onefold.yaml.
type fields struct {
	Secret   string  `json:"secret"`
	Unsigned bool    `json:"unsigned"`
	Auth     *string `json:"auth"`
}

// Put makes or changes the destination a.Name by body, a JSON object of [api.PutDestination]'s form. Its address is
// judged as it will be at every dial; a name that cannot be looked up now is taken. If the process dies before the
// commit nothing is there; after it every process knows within a second. The error is an *api.Error where the caller is
// at fault.
func (b *Book) Put(ctx context.Context, a Act, body []byte) (Put, error) {
	ring, err := b.sealing()
	if err != nil {
		return Put{}, err
	}
	if b.Config.Destinations[a.Name] != nil {
		return Put{}, inFile()
	}
	to, row, in, err := b.read(ctx, a.Name, body)
	if err != nil {
		return Put{}, err
	}
	if row.URL, err = ring.Seal(placeURL(a.Name), telemetry.NewSecret(to.URL.Reveal())); err != nil {
		return Put{}, err
	}
	var p Put
	err = b.act(ctx, a, func(tx pgx.Tx) (action string, details map[string]string, err error) {
		if p.Created, err = store.PutDestination(ctx, tx, row); err != nil {
			return "", nil, err
		}
		if action = "destination.update"; p.Created {
			action = "destination.create"
			salt := make([]byte, 32)
			_, _ = rand.Read(salt) // never fails
			if err := store.EnsureGates(ctx, tx, []gate.Name{gate.Destination(a.Name)}, [][]byte{salt}); err != nil {
				return "", nil, err
			}
		}
		p.Secret, err = putSecrets(ctx, tx, ring, to, in, p.Created)
		return action, map[string]string{"url": row.URLShown}, err
	})
	return p, err
}

// read checks the body of a Put.
func (b *Book) read(ctx context.Context, name string, body []byte) (*config.Destination, store.Destination, fields, error) {
	var in fields
	row := store.Destination{Name: name}
	fail := func(err error) (*config.Destination, store.Destination, fields, error) { return nil, row, in, err }
	members, err := canon.Members(body)
	if err != nil {
		return fail(api.Errorf(api.CodeInvalidJSON, "the body is not one JSON object"))
	}
	all := map[string]json.RawMessage{}
	if err := json.Unmarshal(body, &all); err != nil || len(all) != len(members) {
		return fail(api.Errorf(api.CodeInvalidJSON, "the body is not one JSON object"))
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return fail(api.Errorf(api.CodeInvalidField, "secret and auth are texts, unsigned is true or false"))
	}
	for _, name := range []string{"secret", "unsigned", "auth"} {
		delete(all, name)
	}
	kept := maps.Clone(all)
	delete(kept, "url")
	whole, err := json.Marshal(all)
	if err != nil {
		return fail(err)
	}
	to, err := config.DestinationFromBody(name, whole, config.Opts{})
	if err != nil {
		return fail(wrong(err))
	}
	if in.Auth != nil {
		if err := config.CheckSecret(telemetry.NewSecret(*in.Auth), false); err != nil && *in.Auth != "" {
			return fail(api.Errorf(api.CodeInvalidField, "%s", err.Error()).WithField("auth"))
		}
	}
	if to.Mail() && (in.Secret != "" || in.Unsigned) {
		return fail(api.Errorf(api.CodeInvalidField, "a mail server has no signing secret").WithField("secret"))
	}
	if err := b.judge(ctx, to); err != nil {
		return fail(err)
	}
	row.URLShown = to.URL.String()
	row.Body, err = json.Marshal(kept)
	return to, row, in, err
}

// judge looks the address up: what a dial would refuse is refused now.
func (b *Book) judge(ctx context.Context, to *config.Destination) error {
	u, err := url.Parse(to.URL.Reveal())
	if err != nil {
		return nil //nolint:nilerr // it has been parsed before
	}
	err = b.Guard(to.AllowPrivate).Check(ctx, u.Hostname())
	if blocked, ok := egress.IsBlocked(err); ok {
		return api.Errorf(api.CodeInvalidField, "url: %s", blocked.Error()).WithField("url").
			WithFix("Use an address outside, or allow_private: true where loopback and private ranges are meant.")
	}
	return nil // one that does not resolve now is judged at the dial
}

// wrong is what a destination's fields do not fit as, for whoever sent them.
func wrong(err error) error {
	var all config.Errors
	if !errors.As(err, &all) || len(all) == 0 {
		return err
	}
	lines := make([]string, len(all))
	for i, e := range all {
		lines[i] = strings.TrimPrefix(e.Path+": "+e.Message, ": ")
	}
	out := api.Errorf(api.CodeInvalidField, "%s", strings.Join(lines, "; ")).WithField(all[0].Path)
	if all[0].Fix != "" {
		out = out.WithFix("%s.", strings.ToUpper(all[0].Fix[:1])+all[0].Fix[1:])
	}
	return out
}

// putSecrets stores what a Put brings: a new destination's signing secret, and the credential.
func putSecrets(ctx context.Context, tx pgx.Tx, ring *seal.Ring, to *config.Destination, in fields, created bool) (made telemetry.Secret, err error) {
	switch {
	case !created && in.Secret != "":
		return made, api.Errorf(api.CodeInvalidField, "the destination has its secret already").WithField("secret").
			WithFix("Replace it with POST /v1/destinations/{name}/rotate, so that both sign for a while.")
	case !created && in.Unsigned:
		return made, api.Errorf(api.CodeInvalidField, "unsigned counts when a destination is made").WithField("unsigned").WithFix("Leave it out.")
	case created && !to.Mail() && !in.Unsigned:
		s, isMade, err := signing(in.Secret)
		if err != nil {
			return made, err
		}
		if isMade {
			made = s
		}
		if _, err := insertSecret(ctx, tx, ring, to.Name, forSigning, s); err != nil {
			return made, err
		}
	}
	if in.Auth == nil {
		return made, nil
	}
	if err := store.RetireSecrets(ctx, tx, to.Name, forAuth, 0); err != nil || *in.Auth == "" {
		return made, err
	}
	_, err = insertSecret(ctx, tx, ring, to.Name, forAuth, telemetry.NewSecret(*in.Auth))
	return made, err
}

func insertSecret(ctx context.Context, tx pgx.Tx, ring *seal.Ring, name, purpose string, s telemetry.Secret) (id string, err error) {
	id = newID()
	sealed, err := ring.Seal(placeSecret(name, purpose, id), s)
	if err != nil {
		return "", err
	}
	return id, store.InsertDestinationSecret(ctx, tx, name, store.DestinationSecret{ID: id, Purpose: purpose, Sealed: sealed})
}

// Rotated is a signing secret that was replaced.
type Rotated struct {
	ID     string
	Secret telemetry.Secret // where it was made here
}

// Rotate gives the stored destination a.Name a new signing secret: given, or one that is made where that is "". For the
// time of overlap the former ones sign, too, so that its receiver can change over without refusing anything; 0 ends
// them at once.
func (b *Book) Rotate(ctx context.Context, a Act, given string, overlap time.Duration) (Rotated, error) {
	if overlap < 0 || overlap > maxOverlap {
		return Rotated{}, api.Errorf(api.CodeInvalidField, "overlap is not a time from 0s to %s", maxOverlap).WithField("overlap").WithFix("Send 168h, or leave it out.")
	}
	ring, err := b.sealing()
	if err != nil {
		return Rotated{}, err
	}
	s, made, err := signing(given)
	if err != nil {
		return Rotated{}, err
	}
	var out Rotated
	err = b.change(ctx, a, func(tx pgx.Tx) (string, map[string]string, error) {
		if err := store.RetireSecrets(ctx, tx, a.Name, forSigning, overlap); err != nil {
			return "", nil, err
		}
		rows, err := store.Destinations(ctx, tx, a.Name)
		if err != nil {
			return "", nil, err
		}
		live := 0
		for _, d := range rows {
			for _, s := range d.Secrets {
				if s.Purpose == forSigning {
					live++
				}
			}
			if strings.HasPrefix(d.URLShown, "smtp") {
				return "", nil, api.Errorf(api.CodeInvalidField, "a mail server has no signing secret").WithField("name")
			}
		}
		if live >= maxSigners {
			return "", nil, api.Errorf(api.CodeConflict, "%d former secrets sign still", live).WithField("overlap").
				WithFix("Wait until one has retired, or end them sooner with a shorter overlap.")
		}
		if out.ID, err = insertSecret(ctx, tx, ring, a.Name, forSigning, s); err != nil {
			return "", nil, err
		}
		return "destination.rotate", map[string]string{"secret_id": out.ID, "overlap": overlap.String()}, nil
	})
	if made {
		out.Secret = s
	}
	return out, err
}

// Delete deletes the stored destination a.Name, where no effect waits there, is on its way or is in doubt.
func (b *Book) Delete(ctx context.Context, a Act) error {
	return b.change(ctx, a, func(tx pgx.Tx) (string, map[string]string, error) {
		n, err := store.UnendedEffects(ctx, tx, a.Name)
		if err != nil {
			return "", nil, err
		}
		if n > 0 {
			return "", nil, api.Errorf(api.CodeConflict, "%d effects of the destination have not ended", n).
				WithFix("Hold it and discard them, or let them leave, then delete it.")
		}
		return "destination.delete", nil, store.DeleteDestination(ctx, tx, a.Name)
	})
}

// Rewrap seals everything anew that is not sealed under the ring's first key, and returns how much that was. What does
// not open is counted in left: its key is missing from the ring.
func (b *Book) Rewrap(ctx context.Context, a Act) (done, left int, err error) {
	ring, err := b.sealing()
	if err != nil {
		return 0, 0, err
	}
	rows, err := store.Destinations(ctx, b.Pool)
	if err != nil {
		return 0, 0, err
	}
	for _, d := range rows {
		again := func(place string, old []byte, put func(tx store.DBTX, sealed []byte) (bool, error)) error {
			sealed, changed, err := ring.Rewrap(place, old)
			if err != nil {
				left++
				return nil //nolint:nilerr // counted
			}
			if !changed {
				return nil
			}
			a.Name = d.Name
			return b.act(ctx, a, func(tx pgx.Tx) (string, map[string]string, error) {
				ok, err := put(tx, sealed)
				if ok {
					done++
				}
				return "destination.rewrap", map[string]string{"key": ring.Primary()}, err
			})
		}
		err := again(placeURL(d.Name), d.URL, func(tx store.DBTX, sealed []byte) (bool, error) {
			return store.ResealURL(ctx, tx, d.Name, d.URL, sealed)
		})
		for _, s := range d.Secrets {
			if err != nil {
				return done, left, err
			}
			err = again(placeSecret(d.Name, s.Purpose, s.ID), s.Sealed, func(tx store.DBTX, sealed []byte) (bool, error) {
				return store.ResealSecret(ctx, tx, s.ID, s.Sealed, sealed)
			})
		}
		if err != nil {
			return done, left, err
		}
	}
	return done, left, nil
}

// change is act for a destination that has to be there, and is stored.
func (b *Book) change(ctx context.Context, a Act, f func(tx pgx.Tx) (action string, details map[string]string, err error)) error {
	if b.Config.Destinations[a.Name] != nil {
		return inFile()
	}
	return b.act(ctx, a, func(tx pgx.Tx) (string, map[string]string, error) {
		found, err := store.LockDestination(ctx, tx, a.Name)
		if err != nil {
			return "", nil, err
		}
		if !found {
			return "", nil, api.Errorf(api.CodeNotFound, "there is no stored destination of that name").
				WithFix("See GET /v1/destinations. One of onefold.yaml is changed there.")
		}
		return f(tx)
	})
}

// act is one transaction: f, what makes every process read again, and the audit entry. If the process dies before the
// commit nothing has happened.
func (b *Book) act(ctx context.Context, a Act, f func(tx pgx.Tx) (action string, details map[string]string, err error)) error {
	if b.Pool == nil {
		return api.Errorf(api.CodeUnavailable, "there is no database")
	}
	err := pgx.BeginTxFunc(ctx, b.Pool, store.ReadCommitted, func(tx pgx.Tx) error {
		action, details, err := f(tx)
		if err != nil {
			return err
		}
		if err := store.TouchDestination(ctx, tx, a.Name); err != nil {
			return err
		}
		return store.InsertAudit(ctx, tx, store.AuditEntry{
			Actor: a.Actor, Action: action, TargetType: "destination", TargetID: a.Name, Reason: a.Reason, RequestID: a.RequestID, Details: details,
		})
	})
	if err != nil {
		var ae *api.Error
		if errors.As(err, &ae) {
			return err
		}
		return fmt.Errorf("change destination %s: %w", a.Name, err)
	}
	if err := b.Refresh(ctx); err != nil {
		b.Log.Warn("destinations not read", "error", err)
	}
	_ = store.NotifyGates(ctx, b.Pool) // a lost hint costs a second
	return nil
}

// sealing is the ring, where it can seal.
func (b *Book) sealing() (*seal.Ring, error) {
	if _, err := b.readKeys(); err != nil {
		return nil, err
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.ring.Empty() {
		return nil, api.Errorf(api.CodeInvalidField, "this process has no key to seal secrets with").
			WithFix("Give api and workers a key ring: ONEFOLD_SEAL_KEYS or ONEFOLD_SEAL_KEYS_FILE (onefold destinations key makes one).")
	}
	return b.ring, nil
}

func inFile() error {
	return api.Errorf(api.CodeConflict, "the destination stands in onefold.yaml").
		WithFix("Change it there: secret_file with the new secret and previous_secret_file with the old one sign both.")
}
