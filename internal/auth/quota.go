package auth

import (
	"context"
	"fmt"
	"math"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/store"
)

// SetQuota sets one quota of a tenant, or with AnyTenant that of all tenants that
// have none of their own; 0 takes it away again, infinity lifts that of AnyTenant
// for one tenant. Errors: CodeInvalidField.
//
// After the commit every process goes by it within a second or two; what was let
// in stays. Before the commit nothing has happened.
func SetQuota(ctx context.Context, db DB, tenant string, q api.Quota, value float64, actor, reason string) error {
	if tenant != AnyTenant && !tenantGrammar.MatchString(tenant) {
		return api.Errorf(api.CodeInvalidField, "%q is no tenant name", tenant).WithField("tenant")
	}
	if value < 0 || math.IsNaN(value) || value > 0 && value < 0.001 || q == api.QuotaQueued && !math.IsInf(value, 1) && value != math.Trunc(value) {
		return api.Errorf(api.CodeInvalidField, "%v is no quota of this sort", value).WithField(string(q)).
			WithFix("Give a number above 0 (queued: a whole one), 0 for that of all tenants, or inf for none.")
	}
	var set *float64
	if value > 0 {
		set = &value
	}
	err := pgx.BeginTxFunc(ctx, db, store.ReadCommitted, func(tx pgx.Tx) error {
		before, err := store.SetQuota(ctx, tx, tenant, q, set)
		if err != nil {
			return err
		}
		e := store.AuditEntry{
			Actor: actor, Action: "tenant.quota", TargetType: "tenant", TargetID: tenant, Reason: reason,
			Details: map[string]string{"quota": string(q), "from": shownQuota(before), "to": shownQuota(set)},
		}
		if tenant != AnyTenant {
			e.Tenant = tenant
		}
		return store.InsertAudit(ctx, tx, e)
	})
	if err != nil {
		return fmt.Errorf("set the quota of %s: %w", tenant, err)
	}
	return nil
}

func shownQuota(q *float64) string {
	if q == nil {
		return "default"
	}
	return strconv.FormatFloat(*q, 'f', -1, 64)
}
