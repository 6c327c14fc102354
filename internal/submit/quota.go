package submit

import (
	"context"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/quota"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
)

// admit decides how many of n new tasks of a tenant are let in, and says what
// keeps the others out.
type admit func(tenant string, n int) (let int, why *api.Error, err error)

// letIn sorts those whose slot is free by the quotas of their tenants, and
// refuses what is over them before anything is stored. Submits of one slot stand
// and fall together: they are one task. It is asked for after the key: a
// duplicate is answered however much its tenant has.
func letIn(news []*store.New, open []int, ask admit, refuse func(i int, why error)) (kept []int, err error) {
	slots := map[string][]store.Slot{}
	asked := map[store.Slot]bool{}
	for _, i := range open {
		if slot := news[i].Slot; !asked[slot] {
			asked[slot] = true
			slots[slot.Tenant] = append(slots[slot.Tenant], slot)
		}
	}
	out := map[store.Slot]*api.Error{}
	for tenant, all := range slots {
		let, why, err := ask(tenant, len(all))
		if err != nil {
			return nil, err
		}
		for _, slot := range all[let:] {
			out[slot] = why
		}
	}
	if len(out) == 0 {
		return open, nil
	}
	for _, i := range open {
		if why := out[news[i].Slot]; why != nil {
			refuse(i, why)
			continue
		}
		kept = append(kept, i)
	}
	return kept, nil
}

// tickets are what a flush was let in with, by tenant.
type tickets map[string]quota.Ticket

func (t tickets) ask(ctx context.Context, b *quota.Book) admit {
	return func(tenant string, n int) (int, *api.Error, error) {
		got, why, err := b.Admit(ctx, tenant, n)
		t[tenant] = got
		return got.N, why, err
	}
}

// settle tells what became of the flush, whether or not it was stored.
func (t tickets) settle(news []*store.New, out []landed) {
	created := map[string]int{}
	for i, l := range out {
		if l.created {
			created[news[i].Slot.Tenant]++
		}
	}
	for tenant, got := range t {
		got.Settle(created[tenant])
	}
}

// mayReopen says whether a duplicate may run a failed task again, as far as the
// quotas of its tenant go.
func (s *Service) mayReopen(ctx context.Context, r *task.Row) (bool, error) {
	return s.Quotas.Reopens(ctx, r.Tenant)
}
