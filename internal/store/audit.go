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
