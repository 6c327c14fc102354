package destination

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
)

// How long a worker has to begin a test, how long the whole may take, and how often the row is looked at.
const (
	// TestBegin is how long a test waits for a worker: one that is older is begun by nobody.
	TestBegin = 10 * time.Second
	testWhole = 45 * time.Second
	testLook  = 100 * time.Millisecond
)

// Test asks the workers to send one signed event to a destination, from where effects leave, and waits for what comes of
// it. No gate, no breaker and no effect hears of it, and a closed gate does not keep it. to is who gets the mail at a
// mail server. Nothing is sent after an error that says that no worker began.
func (b *Book) Test(ctx context.Context, a Act, to string) (*api.DestinationTest, error) {
	all, err := b.List(ctx, b.Pool)
	if err != nil {
		return nil, err
	}
	var d *api.Destination
	for i := range all {
		if all[i].Name == a.Name {
			d = &all[i]
		}
	}
	if d == nil {
		return nil, api.Errorf(api.CodeNotFound, "there is no such destination").WithFix("See GET /v1/destinations; one of onefold.yaml is there once a worker that has it started.")
	}
	if mail := strings.HasPrefix(d.URL, "smtp"); mail && to == "" || d.URL != "" && !mail && to != "" {
		return nil, api.Errorf(api.CodeInvalidField, "to is who gets the mail of a test").WithField("to").WithFix("Give it at a mail server, and nowhere else.")
	}
	t := store.DestinationTest{ID: task.NewID(), Destination: a.Name, Recipient: to}
	err = pgx.BeginTxFunc(ctx, b.Pool, store.ReadCommitted, func(tx pgx.Tx) error {
		if err := store.InsertTest(ctx, tx, t, a.Actor); err != nil {
			return err
		}
		return store.InsertAudit(ctx, tx, store.AuditEntry{
			Actor: a.Actor, Action: "destination.test", TargetType: "destination", TargetID: a.Name, Reason: a.Reason, RequestID: a.RequestID,
		})
	})
	if err != nil {
		return nil, err
	}
	return b.awaitTest(ctx, t.ID)
}

func (b *Book) awaitTest(ctx context.Context, id task.ID) (*api.DestinationTest, error) {
	tick := time.NewTicker(testLook)
	defer tick.Stop()
	for began := time.Now(); ; {
		t, err := store.TestByID(ctx, b.Pool, id)
		if err != nil {
			return nil, err
		}
		switch waited := time.Since(began); {
		case t.Finished:
			return wireTest(t), nil
		case !t.Started && waited > TestBegin:
			dropped, err := store.DropTest(ctx, b.Pool, id)
			if err != nil {
				return nil, err
			}
			if dropped {
				return nil, api.Errorf(api.CodeUnavailable, "no worker that knows the destination took the test; nothing was sent").
					WithFix("Start a worker whose onefold.yaml or key ring has it.").WithRetryAfter(TestBegin)
			}
		case waited > testWhole:
			return nil, api.Errorf(api.CodeUnavailable, "the worker that took the test did not say what came of it").WithRetryAfter(time.Second)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func wireTest(t *store.DestinationTest) *api.DestinationTest {
	signed := t.Signed
	if signed == nil {
		signed = []string{}
	}
	return &api.DestinationTest{
		ID: t.ID.String(), Destination: t.Destination, Class: t.Class, Accepted: t.Class == "answered" && t.Status >= 200 && t.Status < 300,
		Status: t.Status, Code: t.Code, Message: t.Message, TotalMS: t.Took.Milliseconds(), SignedBy: signed, Reply: strings.ToValidUTF8(string(t.Reply), "\uFFFD"),
	}
}
