package auth

import (
	"slices"

	"github.com/onefold-dev/onefold/api"
)

// Identity is who a request comes from.
type Identity struct {
	Tenant   string // "" for an instance key: every tenant
	KeyID    string
	Scopes   []api.Scope
	Instance bool
}

// Actor names the identity in the audit.
func (i Identity) Actor() string { return "key:" + i.KeyID }

// Require returns CodeForbidden unless the key has the scope. The scope admin
// includes read and operate, but not submit, which needs a tenant.
func (i Identity) Require(scope api.Scope) error {
	if slices.Contains(i.Scopes, scope) {
		return nil
	}
	if i.Instance && scope == api.ScopeSubmit {
		return api.Errorf(api.CodeForbidden, "an instance key belongs to no tenant and cannot submit or cancel").
			WithFix("Use a key of the tenant, with the scope submit.")
	}
	if scope != api.ScopeSubmit && slices.Contains(i.Scopes, api.ScopeAdmin) {
		return nil
	}
	return api.Errorf(api.CodeForbidden, "the API key lacks the scope %s", scope)
}
