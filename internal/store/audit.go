package store

import (
	"context"
	"encoding/json"
	"fmt"
)

// Audit is one act of a person or of a program with a person's power.
type Audit struct {
	Tenant     string // "" where it concerns the instance
	Actor      string // "key:<id>", "cli:<user>"
	Action     string // "task.resolve", "key.create"
	TargetType string // "task", "api_key", "tenant"
	TargetID   string
	Reason     string
	RequestID  string
	Details    map[string]any // never inputs, results or secrets
}

// InsertAudit writes acts down. It belongs in the transaction of the acts.
func InsertAudit(ctx context.Context, db DBTX, acts ...Audit) error {
	for _, a := range acts {
		details := []byte("{}")
		if len(a.Details) > 0 {
			var err error
			if details, err = json.Marshal(a.Details); err != nil {
				return fmt.Errorf("encode audit details: %w", err)
			}
		}
		_, err := db.Exec(ctx, `
INSERT INTO onefold.audit (tenant, actor, action, target_type, target_id, reason, request_id, details)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
			null(a.Tenant), a.Actor, a.Action, a.TargetType, a.TargetID, a.Reason, null(a.RequestID), string(details))
		if err != nil {
			return fmt.Errorf("audit %s of %s %s: %w", a.Action, a.TargetType, a.TargetID, err)
		}
	}
	return nil
}
