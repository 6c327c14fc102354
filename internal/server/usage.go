package server

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/store"
)

const (
	usageDays = 7   // reported when no day is named
	usageSpan = 400 // days in one report
	usageRows = 10_000
)

type usageParams struct {
	From string   `query:"from" format:"date" doc:"The first day, UTC, as 2026-03-01; six days before to when left out."`
	To   string   `query:"to" format:"date" doc:"The last day, UTC; today when left out."`
	Kind string   `query:"kind" maxLength:"255" doc:"Only calls of this kind."`
	By   []string `query:"by,explode" enum:"day,tenant,kind,provider,model" doc:"What the report tells apart; may be repeated. One row for all when left out."`
}

// usage reports what calls came to. A tenant's key sees its own only.
func (s *Server) usage(ctx context.Context, x *exchange, in *usageParams) (*answer, error) {
	first, last, err := in.span(time.Now().UTC())
	if err != nil {
		return nil, err
	}
	if !storable(in.Kind) {
		return nil, api.Errorf(api.CodeInvalidParam, "kind holds characters that no kind has").WithField("kind")
	}
	has := func(what string) bool { return slices.Contains(in.By, what) }
	by := store.UsageBy{Day: has("day"), Tenant: has("tenant"), Kind: has("kind"), Provider: has("provider"), Model: has("model")}
	ctx, cancel := context.WithTimeout(ctx, 3*readTimeout)
	defer cancel()
	rows, err := store.Usage(ctx, s.DB, x.who.Tenant, in.Kind, first, last, by, usageRows+1)
	if err != nil {
		return nil, err
	}
	if len(rows) > usageRows {
		return nil, api.Errorf(api.CodeInvalidParam, "the report has more than %d rows", usageRows).WithField("by").
			WithFix("Ask for fewer days, or tell fewer things apart.")
	}
	page := api.List[api.UsageRow]{Items: make([]api.UsageRow, len(rows))}
	for i, u := range rows {
		page.Items[i] = wireUsage(u)
	}
	return jsonAnswer(http.StatusOK, page)
}

// span is the first and the last day asked for.
func (p *usageParams) span(now time.Time) (first, last time.Time, err error) {
	last = now.Truncate(24 * time.Hour)
	if p.To != "" {
		if last, err = time.Parse(time.DateOnly, p.To); err != nil {
			return first, last, notADay("to")
		}
	}
	first = last.AddDate(0, 0, 1-usageDays)
	if p.From != "" {
		if first, err = time.Parse(time.DateOnly, p.From); err != nil {
			return first, last, notADay("from")
		}
	}
	if days := last.Sub(first).Hours()/24 + 1; days < 1 || days > usageSpan {
		return first, last, api.Errorf(api.CodeInvalidParam, "from and to do not span 1 to %d days", usageSpan).WithField("from")
	}
	return first, last, nil
}

func notADay(name string) error {
	return api.Errorf(api.CodeInvalidParam, "%s is not a day", name).WithField(name).WithFix("Write it as 2026-03-01.")
}

func wireUsage(u store.UsageRow) api.UsageRow {
	w := api.UsageRow{
		Tenant: u.Tenant, Kind: u.Kind, Provider: u.Provider, Model: u.Model, Calls: u.Calls, Succeeded: u.Succeeded,
		Regenerations: u.Regenerations, Orphaned: u.Orphaned, BilledUnknown: u.BilledUnknown, InputTokens: u.Input, CachedTokens: u.Cached,
		OutputTokens: u.Output, ReasoningTokens: u.Reasoning, Cost: u.Cost,
		Saved: api.Saved{Calls: u.SavedCalls, InputTokens: u.SavedInput, OutputTokens: u.SavedOutput, Cost: u.SavedCost},
	}
	if u.Day != nil {
		w.Day = u.Day.Format(time.DateOnly)
	}
	return w
}
