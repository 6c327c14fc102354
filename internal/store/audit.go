package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// AuditEntry is one act of a person: who did what to which thing, and why.
type AuditEntry struct {
	Tenant     string
	Actor      string
	Action     string
	TargetType string
	TargetID   string
	Reason     string
	RequestID  string
	Details    map[string]string // words of ours, never a payload
}

// InsertAudit writes one entry, in the transaction of the act itself.
func InsertAudit(ctx context.Context, db DBTX, a AuditEntry) error {
	details, err := json.Marshal(a.Details)
	if err != nil || a.Details == nil {
		details = []byte("{}")
	}
	_, err = db.Exec(ctx, `
INSERT INTO onefold.audit (tenant, actor, action, target_type, target_id, reason, request_id, details)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
		null(a.Tenant), a.Actor, a.Action, a.TargetType, a.TargetID, a.Reason, null(a.RequestID), string(details))
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return nil
}

// InsertAudits writes entries in one statement, which needs no transaction of its own.
func InsertAudits(ctx context.Context, db DBTX, all []AuditEntry) error {
	var cols [8][]string
	for _, a := range all {
		details, err := json.Marshal(a.Details)
		if err != nil || a.Details == nil {
			details = []byte("{}")
		}
		for i, v := range []string{a.Tenant, a.Actor, a.Action, a.TargetType, a.TargetID, a.Reason, a.RequestID, string(details)} {
			cols[i] = append(cols[i], v)
		}
	}
	_, err := db.Exec(ctx, `
INSERT INTO onefold.audit (tenant, actor, action, target_type, target_id, reason, request_id, details)
SELECT nullif(tenant, ''), actor, action, target_type, target_id, reason, nullif(request_id, ''), details::jsonb
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[])
  AS u (tenant, actor, action, target_type, target_id, reason, request_id, details)`,
		cols[0], cols[1], cols[2], cols[3], cols[4], cols[5], cols[6], cols[7])
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return nil
}

// ActDone reads the details of the act that was done to a target when it stood
// at that epoch, nil where there was none: an act that comes again is answered
// by what it did the first time.
func ActDone(ctx context.Context, db DBTX, targetType, targetID string, epoch int64) (action string, details map[string]string, err error) {
	err = db.QueryRow(ctx, `
SELECT a.action, a.details
FROM onefold.audit AS a
WHERE a.target_type = $1 AND a.target_id = $2 AND a.details ->> 'epoch' = $3::text
ORDER BY a.id DESC
LIMIT 1`, targetType, targetID, fmt.Sprint(epoch)).Scan(&action, &details)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil, nil
	}
	if err != nil {
		return "", nil, fmt.Errorf("look for an earlier act: %w", err)
	}
	return action, details, nil
}

// Acted is an entry as it is read.
type Acted struct {
	At             time.Time
	Actor          string
	Action, Reason string
}

// Acts reads what people did to a target, oldest first, the newest hundred.
func Acts(ctx context.Context, db DBTX, targetType, targetID string) ([]Acted, error) {
	rows, err := db.Query(ctx, `
SELECT at, actor, action, reason
FROM (
    SELECT *
    FROM onefold.audit AS a
    WHERE a.target_type = $1 AND a.target_id = $2
    ORDER BY a.id DESC
    LIMIT 100
) AS few
ORDER BY id`, targetType, targetID)
	if err != nil {
		return nil, fmt.Errorf("read acts: %w", err)
	}
	out, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Acted, error) {
		var a Acted
		return a, row.Scan(&a.At, &a.Actor, &a.Action, &a.Reason)
	})
	if err != nil {
		return nil, fmt.Errorf("read acts: %w", err)
	}
	return out, nil
}
