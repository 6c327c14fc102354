package ingest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"strconv"
	"time"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/telemetry"
)

const (
	logEvery     = time.Second // between two lines about one source's refusals
	auditTimeout = 5 * time.Second
)

// refusal is one delivery that was not genuine, for the audit. Equal ones of one flush share an entry with their count.
type refusal struct {
	source, tenant, reason, client string
}

// refuse counts the delivery in the audit, which is committed before the answer, and makes the answer. Where the
// database is away the answer is the same: the log then has what the audit has not.
func (s *Service) refuse(ctx context.Context, d *Door, in Delivery, reason string) error {
	telemetry.AuthFailed(telemetry.SideSource, d.Name)
	_, err := s.refusals.Do(context.WithoutCancel(ctx), refusal{source: d.Name, tenant: d.Tenant, reason: reason, client: fold(in.Client)})
	switch {
	case err != nil:
		s.Log.Error("refused webhook not in the audit", "source", d.Name, "reason", reason, "request_id", in.RequestID, "error", err)
	case d.said.Allow():
		s.Log.Warn("webhook refused", "source", d.Name, "reason", reason, "request_id", in.RequestID)
	}
	return api.Errorf(api.CodeBadSignature, "the webhook is not signed as source %s signs, or is too old", d.Name)
}

// fold names a client without its address.
func fold(client string) string {
	sum := sha256.Sum256([]byte(client))
	return hex.EncodeToString(sum[:6])
}

func (s *Service) audit(ctx context.Context, all []refusal) ([]struct{}, error) {
	counts := map[refusal]int{}
	for _, r := range all {
		counts[r]++
	}
	entries := make([]store.AuditEntry, 0, len(counts))
	for r, n := range counts {
		entries = append(entries, store.AuditEntry{
			Tenant: r.tenant, Actor: "source:" + r.source, Action: "webhook.refused", TargetType: "source", TargetID: r.source, Reason: r.reason,
			Details: map[string]string{"count": strconv.Itoa(n), "client": r.client},
		})
	}
	return make([]struct{}, len(all)), store.InsertAudits(ctx, s.DB, entries)
}

// unusable: the sender is who it says, but its event cannot become a task. Somebody has to mend the configuration, and
// until then the sender's own retries keep the event.
func (s *Service) unusable(d *Door, in Delivery, err error) error {
	s.Log.Error("webhook cannot become a task", "source", d.Name, "request_id", in.RequestID, "error", err)
	return err
}

// mismatch: the key came before with another content. Nothing is changed; that it happened is noted, because either the
// key is made of too little or the sender changes events.
func (s *Service) mismatch(ctx context.Context, d *Door, in Delivery, e *api.Error) Answer {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), auditTimeout)
	defer cancel()
	err := store.InsertAudits(ctx, s.DB, []store.AuditEntry{{
		Tenant: d.Tenant, Actor: actor(d.Source), Action: "webhook.mismatch", TargetType: "task", TargetID: e.TaskID,
		Reason: "the key came before with another content", RequestID: in.RequestID,
	}})
	attrs := []any{slog.String("source", d.Name), slog.String("task_id", e.TaskID), slog.String("request_id", in.RequestID), slog.Int("count", len(e.Mismatch))}
	if err != nil {
		attrs = append(attrs, slog.Any("error", err))
	}
	s.Log.Error("webhook differs from the first with its key", attrs...)
	return Answer{Status: Mismatch, TaskID: e.TaskID}
}
