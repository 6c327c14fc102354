package auth

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/store"
)

// MaxLive is how many keys of one name may be live at once: the one in use, and
// the one it is being replaced by.
const MaxLive = 2

// maxExpiry bounds how far ahead a key may expire; beyond it "never" is meant.
const maxExpiry = 100 * 365 * 24 * time.Hour

// DB is what keys are managed on: a pool or a connection.
type DB interface {
	store.DBTX
	BeginTx(ctx context.Context, o pgx.TxOptions) (pgx.Tx, error)
}

// NewKey asks for a key.
type NewKey struct {
	Tenant    string        // AnyTenant for an instance key
	Name      string        // "default" when empty; at most MaxLive live keys may share it
	Scopes    []api.Scope   // submit and read when empty, admin for an instance key
	ExpiresIn time.Duration // 0 = never
	Actor     string        // who asks, for the audit
	RequestID string
}

func (n *NewKey) defaults() {
	if n.Name == "" {
		n.Name = "default"
	}
	if len(n.Scopes) == 0 {
		n.Scopes = []api.Scope{api.ScopeSubmit, api.ScopeRead}
		if n.Tenant == AnyTenant {
			n.Scopes = []api.Scope{api.ScopeAdmin}
		}
	}
	if n.Actor == "" {
		n.Actor = "unknown"
	}
}

func (n *NewKey) validate() error {
	instance := n.Tenant == AnyTenant
	if !instance && !tenantGrammar.MatchString(n.Tenant) {
		return api.Errorf(api.CodeInvalidField, "%q is no tenant name", n.Tenant).WithField("tenant").
			WithFix("Use 1 to 63 of a-z, 0-9, '.', '_' and '-', the first a letter or digit; or %s for an instance key.", AnyTenant)
	}
	if !nameGrammar.MatchString(n.Name) {
		return api.Errorf(api.CodeInvalidField, "%q is no key name", n.Name).WithField("name").
			WithFix("Use 1 to 63 letters, digits, '.', '_' and '-', the first a letter or digit.")
	}
	for _, s := range n.Scopes {
		if !slices.Contains(api.Scopes, s) {
			return api.Errorf(api.CodeInvalidField, "%q is no scope", s).WithField("scopes").WithFix("Use %s.", words(api.Scopes))
		}
		if s == api.ScopeAdmin && !instance {
			return api.Errorf(api.CodeInvalidField, "a tenant's key cannot have the scope admin").WithField("scopes").
				WithFix("Make an instance key: tenant %s.", AnyTenant)
		}
		if s == api.ScopeSubmit && instance {
			return api.Errorf(api.CodeInvalidField, "an instance key cannot submit: it belongs to no tenant").WithField("scopes").
				WithFix("Make a key of the tenant that submits.")
		}
	}
	if n.ExpiresIn < 0 || n.ExpiresIn > maxExpiry {
		return api.Errorf(api.CodeInvalidField, "the expiry is not between now and 100 years ahead").WithField("expires_in").
			WithFix("Give a time such as 90d, or none for a key that does not expire.")
	}
	return nil
}

func words(scopes []api.Scope) string {
	out := make([]string, len(scopes))
	for i, s := range scopes {
		out[i] = string(s)
	}
	return strings.Join(out, ", ")
}

// Create makes a key, and its tenant where that is new. The secret is returned
// here and nowhere else. Errors: CodeInvalidField; CodeConflict when MaxLive
// keys of that name are live already.
//
// After the commit the key works in every process. Before it nothing is there;
// when the process dies in between, a key may exist whose secret nobody has
// seen: it is listed, and can be revoked.
func Create(ctx context.Context, db DB, n NewKey) (secret string, key Key, err error) {
	n.defaults()
	if err := n.validate(); err != nil {
		return "", Key{}, err
	}
	id, random := draw()
	tenant := n.Tenant
	if tenant == AnyTenant {
		tenant = ""
	}
	var made *store.APIKey
	err = pgx.BeginTxFunc(ctx, db, store.ReadCommitted, func(tx pgx.Tx) error {
		if err := store.LockAPIKeyName(ctx, tx, tenant, n.Name); err != nil {
			return err
		}
		if err := room(ctx, tx, tenant, n); err != nil {
			return err
		}
		if err := ensureTenant(ctx, tx, tenant, n); err != nil {
			return err
		}
		row := store.APIKey{ID: id, Tenant: tenant, Name: n.Name, SecretHash: hash(random), Scopes: n.Scopes}
		if made, err = store.InsertAPIKey(ctx, tx, row, n.ExpiresIn); err != nil {
			return err
		}
		return store.InsertAudit(ctx, tx, store.AuditEntry{
			Tenant: tenant, Actor: n.Actor, Action: "key.create", TargetType: "api_key", TargetID: id, RequestID: n.RequestID,
			Details: map[string]string{"name": n.Name, "scopes": words(n.Scopes)},
		})
	})
	if err != nil {
		return "", Key{}, fmt.Errorf("create API key: %w", err)
	}
	return format(id, random), shown(made), nil
}

// ensureTenant makes the tenant where it is new.
func ensureTenant(ctx context.Context, tx store.DBTX, tenant string, n NewKey) error {
	if tenant == "" {
		return nil
	}
	fresh, err := store.InsertTenant(ctx, tx, tenant)
	if err != nil || !fresh {
		return err
	}
	return store.InsertAudit(ctx, tx, store.AuditEntry{
		Tenant: tenant, Actor: n.Actor, Action: "tenant.create", TargetType: "tenant", TargetID: tenant, RequestID: n.RequestID,
	})
}

// room refuses a key too many.
func room(ctx context.Context, tx store.DBTX, tenant string, n NewKey) error {
	keys, err := store.APIKeys(ctx, tx, tenant, false)
	if err != nil {
		return err
	}
	var live []string
	for _, k := range keys {
		if k.Name == n.Name && k.Live {
			live = append(live, k.ID)
		}
	}
	if len(live) < MaxLive {
		return nil
	}
	return api.Errorf(api.CodeConflict, "the tenant %s has %d live keys named %q: %s", n.Tenant, len(live), n.Name, strings.Join(live, ", ")).
		WithField("name").
		WithFix("Revoke the one no longer in use (`onefold keys revoke %s`), or give the new key another name.", live[len(live)-1])
}

// List returns the keys of a tenant (AnyTenant: the instance keys), or of all
// when tenant is empty, newest first, with those no longer live.
func List(ctx context.Context, db store.DBTX, tenant string) ([]Key, error) {
	name := tenant
	if tenant == AnyTenant {
		name = ""
	}
	rows, err := store.APIKeys(ctx, db, name, tenant == "")
	if err != nil {
		return nil, err
	}
	keys := make([]Key, len(rows))
	for i, r := range rows {
		keys[i] = shown(r)
	}
	return keys, nil
}

// Revoke ends a key; processes that have it in their cache refuse it within
// CacheFor. Revoking it again changes nothing. actor is for the audit. Errors:
// CodeNotFound.
func Revoke(ctx context.Context, db DB, id, actor string) (Key, error) {
	var key *store.APIKey
	err := pgx.BeginTxFunc(ctx, db, store.ReadCommitted, func(tx pgx.Tx) error {
		did, err := store.RevokeAPIKey(ctx, tx, id)
		if err != nil {
			return err
		}
		if key, err = store.APIKeyByID(ctx, tx, id); err != nil {
			return err
		}
		if key == nil {
			return api.Errorf(api.CodeNotFound, "there is no API key %q", id).
				WithFix("See `onefold keys list`; the id is the part between of_ and the second underscore.")
		}
		if !did {
			return nil
		}
		return store.InsertAudit(ctx, tx, store.AuditEntry{
			Tenant: key.Tenant, Actor: actor, Action: "key.revoke", TargetType: "api_key", TargetID: id,
		})
	})
	if err != nil {
		return Key{}, fmt.Errorf("revoke API key: %w", err)
	}
	return shown(key), nil
}
