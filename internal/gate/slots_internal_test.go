package gate

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDivide(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		limit int
		wants []int
		want  []int
	}{
		{10, []int{10}, []int{10}},
		{10, []int{0}, []int{10}},
		{10, []int{0, 0}, []int{5, 5}},
		{10, []int{10, 0}, []int{10, 0}},
		{10, []int{10, 10}, []int{5, 5}},
		{10, []int{2, 10, 10}, []int{2, 4, 4}},
		{7, []int{7, 7}, []int{4, 3}},
		{1, []int{1, 1, 1}, []int{1, 0, 0}},
		{10, []int{3, 1}, []int{6, 4}},
		{0, []int{3, 1}, []int{0, 0}},
	} {
		got := divide(tt.limit, tt.wants, 0)
		if diff := cmp.Diff(got, tt.want); diff != "" {
			t.Errorf("divide(%d, %v): %s", tt.limit, tt.wants, diff)
		}
	}
	first := map[int]bool{}
	for turn := range 3 {
		for i, n := range divide(1, []int{1, 1, 1}, turn) {
			if n == 1 {
				first[i] = true
			}
		}
	}
	if len(first) != 3 {
		t.Errorf("in three turns %d of three had the one place", len(first))
	}
	if diff := cmp.Diff(divide(10, []int{2, 10, 10}, 2), []int{2, 4, 4}); diff != "" {
		t.Error(diff)
	}
}

// Whose context has ended gets no place, although there is one.
func TestEndedContextGetsNoPlace(t *testing.T) {
	t.Parallel()
	s := &slots{limit: 1, share: 1, kick: func() {}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.acquire(ctx); !errors.Is(err, context.Canceled) || s.used != 0 {
		t.Errorf("got %v with %d in use, want %v and none", err, s.used, context.Canceled)
	}
}
