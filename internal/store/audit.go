package store

import (
	"context"
	"encoding/json"
	"fmt"
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
