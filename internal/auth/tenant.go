package auth

import (
	"context"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/store"
)

// MaxWeight is the largest weight of a tenant.
const MaxWeight = 10_000

// SetWeight sets the weight of a tenant's share, or with AnyTenant that of all
// tenants that have none of their own; 0 takes it away again. Errors:
// CodeInvalidField.
//
// After the commit every process gives out places by it within a second; places
// that were given out stay. Before the commit nothing has happened.
func SetWeight(ctx context.Context, db DB, tenant string, weight int, actor, reason string) error {
	if tenant != AnyTenant && !tenantGrammar.MatchString(tenant) {
		return api.Errorf(api.CodeInvalidField, "%q is no tenant name", tenant).WithField("tenant")
	}
	if weight < 0 || weight > MaxWeight {
		return api.Errorf(api.CodeInvalidField, "the weight is not between 1 and %d", MaxWeight).WithField("weight")
	}
	var set *int
	if weight > 0 {
		set = &weight
	}
	err := pgx.BeginTxFunc(ctx, db, store.ReadCommitted, func(tx pgx.Tx) error {
		before, err := store.SetWeight(ctx, tx, tenant, set)
		if err != nil {
			return err
		}
		e := store.AuditEntry{
			Actor: actor, Action: "tenant.weight", TargetType: "tenant", TargetID: tenant, Reason: reason,
			Details: map[string]string{"from": shownWeight(before), "to": shownWeight(set)},
		}
		if tenant != AnyTenant {
			e.Tenant = tenant
		}
		return store.InsertAudit(ctx, tx, e)
	})
	if err != nil {
		return fmt.Errorf("set the weight of %s: %w", tenant, err)
	}
	return nil
}

func shownWeight(w *int) string {
	if w == nil {
		return "default"
	}
	return strconv.Itoa(*w)
}
