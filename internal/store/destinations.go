package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Destination is one that was made through the API. URL is sealed; URLShown is it without its secret parts.
type Destination struct {
	Name      string
	Body      []byte
	URLShown  string
	URL       []byte
	UpdatedAt time.Time
	Secrets   []DestinationSecret // the newest first
}

// DestinationSecret is a sealed secret of a destination. Purpose is sign or auth.
type DestinationSecret struct {
	ID        string
	Purpose   string
	Sealed    []byte
	CreatedAt time.Time
	RetiresAt *time.Time
	Left      *time.Duration // until it retires, by the database's clock
}

// DestinationsVersion changes whenever a stored destination or one of its secrets does.
func DestinationsVersion(ctx context.Context, db DBTX) (v string, err error) {
	err = db.QueryRow(ctx, `
SELECT coalesce(md5(string_agg(name || ' ' || xmin::text || ' ' || ctid::text, ',' ORDER BY name)), '')
FROM onefold.destinations`).Scan(&v)
	if err != nil {
		return "", fmt.Errorf("look at destinations: %w", err)
	}
	return v, nil
}

// Destinations reads the stored destinations, all of them where no names are given, by name, with the secrets that
// have not retired.
func Destinations(ctx context.Context, db DBTX, names ...string) ([]Destination, error) {
	rows, err := db.Query(ctx, `
SELECT d.name, d.body, d.url_shown, d.url, d.updated_at, s.id, s.purpose, s.sealed, s.created_at, s.retires_at, s.retires_at - now()
FROM onefold.destinations AS d
LEFT JOIN onefold.destination_secrets AS s ON s.destination = d.name AND (s.retires_at IS NULL OR s.retires_at > now())
WHERE cardinality($1::text[]) = 0 OR d.name = ANY ($1)
ORDER BY d.name, s.created_at DESC, s.id`, noNil(names))
	if err != nil {
		return nil, fmt.Errorf("read destinations: %w", err)
	}
	defer rows.Close()
	var all []Destination
	for rows.Next() {
		var d Destination
		var id, purpose *string
		var created *time.Time
		var s DestinationSecret
		if err := rows.Scan(&d.Name, &d.Body, &d.URLShown, &d.URL, &d.UpdatedAt, &id, &purpose, &s.Sealed, &created, &s.RetiresAt, &s.Left); err != nil {
			return nil, fmt.Errorf("read destinations: %w", err)
		}
		if n := len(all); n == 0 || all[n-1].Name != d.Name {
			all = append(all, d)
		}
		if id != nil {
			s.ID, s.Purpose, s.CreatedAt = *id, *purpose, *created
			last := &all[len(all)-1]
			last.Secrets = append(last.Secrets, s)
		}
	}
	return all, rows.Err()
}

// LockDestination locks a stored destination and says whether it is there.
func LockDestination(ctx context.Context, tx DBTX, name string) (found bool, err error) {
	err = tx.QueryRow(ctx, `SELECT true FROM onefold.destinations WHERE name = $1 FOR UPDATE`, name).Scan(&found)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("lock destination: %w", err)
	}
	return found, nil
}

// PutDestination writes a destination, without its secrets. created says that there was none of the name.
func PutDestination(ctx context.Context, tx DBTX, d Destination) (created bool, err error) {
	err = tx.QueryRow(ctx, `
INSERT INTO onefold.destinations AS d (name, body, url_shown, url)
VALUES ($1, $2, $3, $4)
ON CONFLICT (name) DO UPDATE
SET body = excluded.body, url_shown = excluded.url_shown, url = excluded.url, updated_at = clock_timestamp()
RETURNING xmax = 0`, d.Name, d.Body, d.URLShown, d.URL).Scan(&created)
	if err != nil {
		return false, fmt.Errorf("store destination: %w", err)
	}
	return created, nil
}

// TouchDestination makes every process read a destination again.
func TouchDestination(ctx context.Context, tx DBTX, name string) error {
	if _, err := tx.Exec(ctx, `UPDATE onefold.destinations SET updated_at = clock_timestamp() WHERE name = $1`, name); err != nil {
		return fmt.Errorf("touch destination: %w", err)
	}
	return nil
}

// DeleteDestination deletes a stored destination with its secrets, what is counted of them, and its gate.
func DeleteDestination(ctx context.Context, tx DBTX, name string) error {
	for _, sql := range []string{
		`DELETE FROM onefold.destinations WHERE name = $1`,
		`DELETE FROM onefold.destination_signers WHERE destination = $1`,
		`DELETE FROM onefold.gates WHERE scope = 'destination' AND name = $1`,
	} {
		if _, err := tx.Exec(ctx, sql, name); err != nil {
			return fmt.Errorf("delete destination: %w", err)
		}
	}
	return nil
}

// UnendedEffects counts what waits at a destination, is on its way or in doubt there.
func UnendedEffects(ctx context.Context, db DBTX, destination string) (n int64, err error) {
	err = db.QueryRow(ctx, `
SELECT count(*)
FROM onefold.effects
WHERE destination = $1 AND state IN ('waiting', 'delivering', 'held', 'unknown')`, destination).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count effects of a destination: %w", err)
	}
	return n, nil
}

// InsertDestinationSecret stores a sealed secret. Of two made in one transaction the later is the newer one.
func InsertDestinationSecret(ctx context.Context, tx DBTX, destination string, s DestinationSecret) error {
	_, err := tx.Exec(ctx, `
INSERT INTO onefold.destination_secrets (id, destination, purpose, sealed, created_at)
VALUES ($1, $2, $3, $4, clock_timestamp())`, s.ID, destination, s.Purpose, s.Sealed)
	if err != nil {
		return fmt.Errorf("store secret: %w", err)
	}
	return nil
}

// RetireSecrets lets the secrets of a purpose retire after a while, those that retire sooner then, and deletes those
// that have retired.
func RetireSecrets(ctx context.Context, tx DBTX, destination, purpose string, after time.Duration) error {
	_, err := tx.Exec(ctx, `
UPDATE onefold.destination_secrets
SET retires_at = least(retires_at, now() + $3)
WHERE destination = $1 AND purpose = $2`, destination, purpose, after)
	if err == nil {
		_, err = tx.Exec(ctx, `DELETE FROM onefold.destination_secrets WHERE destination = $1 AND retires_at <= now()`, destination)
	}
	if err != nil {
		return fmt.Errorf("retire secrets: %w", err)
	}
	return nil
}

// ResealURL and ResealSecret replace a sealed text by another of the same secret. False: it had changed.
func ResealURL(ctx context.Context, tx DBTX, name string, old, sealed []byte) (bool, error) {
	tag, err := tx.Exec(ctx, `UPDATE onefold.destinations SET url = $3, updated_at = clock_timestamp() WHERE name = $1 AND url = $2`, name, old, sealed)
	if err != nil {
		return false, fmt.Errorf("reseal address: %w", err)
	}
	return tag.RowsAffected() > 0, nil
}

// ResealSecret: see ResealURL.
func ResealSecret(ctx context.Context, tx DBTX, id string, old, sealed []byte) (bool, error) {
	tag, err := tx.Exec(ctx, `UPDATE onefold.destination_secrets SET sealed = $3 WHERE id = $1 AND sealed = $2`, id, old, sealed)
	if err != nil {
		return false, fmt.Errorf("reseal secret: %w", err)
	}
	return tag.RowsAffected() > 0, nil
}

// Signer is what is counted of a secret that signs for a destination.
type Signer struct {
	Destination, Secret string
	FirstAt, LastAt     time.Time
	Deliveries          int64
}

// Signers reads what is counted of all secrets, the latest first.
func Signers(ctx context.Context, db DBTX) ([]Signer, error) {
	rows, err := db.Query(ctx, `
SELECT destination, secret, first_at, last_at, deliveries
FROM onefold.destination_signers
ORDER BY destination, first_at DESC, secret`)
	if err != nil {
		return nil, fmt.Errorf("read signers: %w", err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Signer])
	if err != nil {
		return nil, fmt.Errorf("read signers: %w", err)
	}
	return all, nil
}

// AddSigned adds deliveries to what is counted of secrets, in one statement and in the order of their names.
func AddSigned(ctx context.Context, db DBTX, all []Signer) error {
	var destinations, secrets []string
	var counts []int64
	for _, s := range all {
		destinations, secrets, counts = append(destinations, s.Destination), append(secrets, s.Secret), append(counts, s.Deliveries)
	}
	_, err := db.Exec(ctx, `
INSERT INTO onefold.destination_signers AS s (destination, secret, deliveries)
SELECT q.destination, q.secret, q.n
FROM unnest($1::text[], $2::text[], $3::bigint[]) AS q (destination, secret, n)
ORDER BY q.destination, q.secret
ON CONFLICT (destination, secret) DO UPDATE
SET last_at = now(), deliveries = s.deliveries + excluded.deliveries`, destinations, secrets, counts)
	if err != nil {
		return fmt.Errorf("count signatures: %w", err)
	}
	return nil
}
