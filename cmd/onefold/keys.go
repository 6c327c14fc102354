package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os/user"
	"strconv"
	"strings"
	"time"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/auth"
)

type keysCmd struct {
	Create keysCreateCmd `cmd:"" help:"Make an API key; its secret is printed once."`
	List   keysListCmd   `cmd:"" help:"List API keys."`
	Revoke keysRevokeCmd `cmd:"" help:"End an API key."`
}

type keysCreateCmd struct {
	dbFlags
	Tenant  string   `required:"" help:"The tenant it belongs to, made where it is new; * for an instance key."`
	Name    string   `help:"What uses it; two keys of one name can be live, for changing over."`
	Scopes  []string `name:"scope" placeholder:"SCOPE" help:"submit, read, operate; admin for an instance key. Default: submit,read."`
	Expires span     `placeholder:"DURATION" help:"How long it is valid, as in 12h or 90d. Default: for ever."`
}

func (c *keysCreateCmd) Help() string {
	return `The secret goes to stdout and all else to stderr, so that it can be caught: export ONEFOLD_API_KEY=$(onefold keys create --tenant acme)`
}

func (c *keysCreateCmd) Run(ctx context.Context, e *env) error {
	pool, err := c.open(ctx, e)
	if err != nil {
		return err
	}
	defer pool.Close()
	n := auth.NewKey{Tenant: c.Tenant, Name: c.Name, ExpiresIn: time.Duration(c.Expires), Actor: actor()}
	for _, s := range c.Scopes {
		n.Scopes = append(n.Scopes, api.Scope(s))
	}
	secret, key, err := auth.Create(ctx, pool, n)
	if err != nil {
		return dbProblem(err)
	}
	if e.json {
		return e.object(struct {
			Secret string `json:"secret"`
			auth.Key
		}{secret, key})
	}
	e.say("made the key %s of tenant %s, named %s, for %s, valid %s; it is not shown again", key.ID, key.Tenant, key.Name, scopes(key), validity(e, key))
	return e.print(secret + "\n")
}

type keysListCmd struct {
	dbFlags
	Tenant string `help:"Only this tenant's; * for instance keys."`
}

func (c *keysListCmd) Run(ctx context.Context, e *env) error {
	pool, err := c.open(ctx, e)
	if err != nil {
		return err
	}
	defer pool.Close()
	keys, err := auth.List(ctx, pool, c.Tenant)
	if err != nil {
		return dbProblem(err)
	}
	rows := [][]string{{"ID", "TENANT", "NAME", "SCOPES", "CREATED", "VALID"}}
	for _, k := range keys {
		if e.json {
			if err := e.object(k); err != nil {
				return err
			}
			continue
		}
		rows = append(rows, []string{k.ID, clean(k.Tenant), clean(k.Name), scopes(k), e.when(k.CreatedAt), validity(e, k)})
	}
	if e.json {
		return nil
	}
	return e.rows(rows, nil)
}

type keysRevokeCmd struct {
	dbFlags
	ID string `arg:"" help:"The key's id: the part between of_ and the second underscore."`
}

func (c *keysRevokeCmd) Run(ctx context.Context, e *env) error {
	pool, err := c.open(ctx, e)
	if err != nil {
		return err
	}
	defer pool.Close()
	key, err := auth.Revoke(ctx, pool, c.ID, actor())
	if err != nil {
		return dbProblem(err)
	}
	if e.json {
		return e.object(key)
	}
	return e.print(fmt.Sprintf("revoked %s (tenant %s, named %s); refused everywhere within %s\n", key.ID, clean(key.Tenant), clean(key.Name), auth.CacheFor))
}

func scopes(k auth.Key) string {
	out := make([]string, len(k.Scopes))
	for i, s := range k.Scopes {
		out[i] = string(s)
	}
	return strings.Join(out, ",")
}

func validity(e *env, k auth.Key) string {
	switch {
	case k.RevokedAt != nil:
		return "revoked " + e.when(*k.RevokedAt)
	case k.ExpiresAt == nil:
		return "for ever"
	case !k.Live:
		return "expired " + e.when(*k.ExpiresAt)
	default:
		return "until " + e.when(*k.ExpiresAt)
	}
}

// actor names for the audit who ran the command.
func actor() string {
	u, err := user.Current()
	if err != nil {
		return "cli"
	}
	return "cli:" + u.Username
}

func (e *env) object(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	return e.print(string(b) + "\n")
}

// span is a duration that may be given in days.
type span time.Duration

// UnmarshalText reads s; kong calls it.
func (d *span) UnmarshalText(s []byte) error {
	text := string(s)
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		if err == nil && n > 0 {
			*d = span(time.Duration(n) * 24 * time.Hour)
			return nil
		}
	}
	v, err := time.ParseDuration(text)
	if err != nil || v <= 0 {
		return fmt.Errorf("%q is no time to come such as 12h or 90d", text)
	}
	*d = span(v)
	return nil
}
