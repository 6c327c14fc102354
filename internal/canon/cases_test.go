package canon_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onefold-dev/onefold/internal/canon"
	"github.com/onefold-dev/onefold/internal/casetest"
)

// decided holds the statuses of cases that leave the rule open, as this
// package decides it.
var decided = map[string][]int{
	"C022": {202, 200}, // the reply is lost, the payload is the same
	"C048": {400},      // a case variant of a known field is refused, not ignored
	"C057": {400},      // a byte order mark is refused, not stripped
	"C071": {202},      // six digits of exponent are within the limit
	"C072": {202},
	"C079": {202},
}

// TestSubmitCases plays the cases of type submit against keys and fingerprints
// alone: 400 what is refused, 202 a key not seen, 200 the same payload again,
// 422 another.
func TestSubmitCases(t *testing.T) {
	t.Parallel()
	for _, c := range casetest.Claimed(t, "internal/canon.TestSubmitCases") {
		t.Run(c.ID, func(t *testing.T) {
			t.Parallel()
			judgeSubmits(t, c)
		})
	}
}

func judgeSubmits(t *testing.T, c casetest.Case) {
	var want casetest.SubmitAnswer
	c.Expect(t, &want)
	statuses := want.Statuses
	if override, ok := decided[c.ID]; ok {
		statuses = override
	}
	type slot struct{ tenant, key string }
	seen := map[slot][32]byte{}
	var got []int
	for _, s := range casetest.Submits(t, c) {
		start := time.Now()
		key, sum, err := judge(s)
		// A guard against work that grows with the value of a number, at five
		// times what the case names.
		if limit := time.Duration(want.LatencyMsMax) * 5 * time.Millisecond; limit > 0 && time.Since(start) > limit {
			t.Errorf("took %v, over %v", time.Since(start), limit)
		}
		at := slot{s.Credential, key}
		before, again := seen[at]
		switch {
		case err != nil:
			got = append(got, 400)
		case !again:
			seen[at] = sum
			got = append(got, 202)
		case before == sum:
			got = append(got, 200)
		default:
			got = append(got, 422)
		}
	}
	if diff := cmp.Diff(statuses, got); diff != "" {
		t.Errorf("statuses (-want +got):\n%s", diff)
	}
	if want.TasksCreated != nil && len(seen) != *want.TasksCreated {
		t.Errorf("%d tasks, want %d", len(seen), *want.TasksCreated)
	}
}

// judge reads one request as a submit does.
func judge(s casetest.Submit) (key string, sum [32]byte, err error) {
	key, found, err := canon.Key(s.Header())
	if err != nil {
		return "", sum, err
	}
	if !found {
		return "", sum, canon.MissingKey()
	}
	if err := canon.CheckChat(s.Input); err != nil {
		return "", sum, err
	}
	sum, err = canon.Fingerprint("llm.chat", s.Input, nil)
	return key, sum, err
}
