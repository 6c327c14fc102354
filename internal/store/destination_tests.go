package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/internal/task"
)

// DestinationTest is a delivery tried on purpose.
type DestinationTest struct {
	ID          task.ID
	Destination string
	Recipient   string
	RequestedAt time.Time
	Started     bool
	Finished    bool
	Class       string
	Status      int
	Code        string
	Message     string
	Took        time.Duration
	Reply       []byte
	Signed      []string
}

// testsKept is how long tests are kept.
const testsKept = 30 * 24 * time.Hour

// InsertTest asks for a test, and deletes those of the destination that are old.
func InsertTest(ctx context.Context, tx DBTX, t DestinationTest, actor string) error {
	_, err := tx.Exec(ctx, `DELETE FROM onefold.destination_tests WHERE destination = $1 AND requested_at < now() - $2::interval`, t.Destination, testsKept)
	if err == nil {
		_, err = tx.Exec(ctx, `
INSERT INTO onefold.destination_tests (id, destination, actor, recipient)
VALUES ($1, $2, $3, $4)`, t.ID, t.Destination, actor, null(t.Recipient))
	}
	if err != nil {
		return fmt.Errorf("ask for a test: %w", err)
	}
	return nil
}

// StartTest takes the oldest test that was asked for lately at one of the destinations, or nil. Whoever takes it makes
// it; should its process die, it stays without an end.
func StartTest(ctx context.Context, db DBTX, destinations []string, lately time.Duration) (*DestinationTest, error) {
	t := DestinationTest{Started: true}
	err := db.QueryRow(ctx, `
UPDATE onefold.destination_tests
SET started_at = now()
WHERE id = (
    SELECT id
    FROM onefold.destination_tests
    WHERE started_at IS NULL AND requested_at > now() - $2::interval AND destination = ANY ($1)
    ORDER BY requested_at
    LIMIT 1
    FOR UPDATE SKIP LOCKED)
RETURNING id, destination, coalesce(recipient, ''), requested_at`, destinations, lately).Scan(&t.ID, &t.Destination, &t.Recipient, &t.RequestedAt)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("take a test: %w", err)
	}
	return &t, nil
}

// EndTest records what came of a test.
func EndTest(ctx context.Context, db DBTX, t DestinationTest) error {
	_, err := db.Exec(ctx, `
UPDATE onefold.destination_tests
SET finished_at = now(), class = $2, status = nullif($3, 0), code = $4, message = $5, total_ms = $6, reply = $7, signed = $8
WHERE id = $1 AND finished_at IS NULL`, t.ID, t.Class, t.Status, null(t.Code), null(t.Message), t.Took.Milliseconds(), t.Reply, noNil(t.Signed))
	if err != nil {
		return fmt.Errorf("record a test: %w", err)
	}
	return nil
}

// DropTest takes back a test that nobody has begun; false where somebody has.
func DropTest(ctx context.Context, db DBTX, id task.ID) (bool, error) {
	tag, err := db.Exec(ctx, `DELETE FROM onefold.destination_tests WHERE id = $1 AND started_at IS NULL`, id)
	if err != nil {
		return false, fmt.Errorf("take a test back: %w", err)
	}
	return tag.RowsAffected() > 0, nil
}

// TestByID reads a test.
func TestByID(ctx context.Context, db DBTX, id task.ID) (*DestinationTest, error) {
	t := DestinationTest{ID: id}
	var ms int64
	err := db.QueryRow(ctx, `
SELECT destination, coalesce(recipient, ''), requested_at, started_at IS NOT NULL, finished_at IS NOT NULL, coalesce(class, ''), coalesce(status, 0),
       coalesce(code, ''), coalesce(message, ''), coalesce(total_ms, 0), reply, coalesce(signed, '{}')
FROM onefold.destination_tests
WHERE id = $1`, id).Scan(&t.Destination, &t.Recipient, &t.RequestedAt, &t.Started, &t.Finished, &t.Class, &t.Status, &t.Code, &t.Message, &ms, &t.Reply, &t.Signed)
	if err != nil {
		return nil, fmt.Errorf("read a test: %w", err)
	}
	t.Took = time.Duration(ms) * time.Millisecond
	return &t, nil
}
