package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// deliveries is how often the platform told of the one event.
const deliveries = 17

var client = &http.Client{Timeout: 30 * time.Second}

// deliver is the shop's platform: it takes every answer for a lost one and sends
// again, three at a time, with another request id, another retry counter and
// another time of sending; in the middle the hour turns and its secret changes.
func (s *stage) deliver(ctx context.Context) (map[int]int, error) {
	if _, err := s.db.Exec(ctx, `INSERT INTO public.coupons (order_id) VALUES ('o-1001')`); err != nil {
		return nil, fmt.Errorf("take the order: %w", err)
	}
	turn := time.Now().Round(time.Hour)
	statuses, errs := map[int]int{}, []error{}
	var mu sync.Mutex
	var some sync.WaitGroup
	for n := range deliveries {
		some.Go(func() {
			status, err := s.tell(ctx, n, turn)
			mu.Lock()
			defer mu.Unlock()
			statuses[status]++
			if err != nil {
				errs = append(errs, err)
			}
		})
		if n%3 == 2 {
			some.Wait()
		}
	}
	some.Wait()
	if len(errs) > 0 {
		return nil, errs[0]
	}
	return statuses, nil
}

func (s *stage) tell(ctx context.Context, n int, turn time.Time) (int, error) {
	at := turn.Add(time.Duration(n-deliveries/2) * 15 * time.Second)
	secret := oldSecret
	if n >= deliveries/2 {
		secret = newSecret
	}
	id := fmt.Sprintf("msg-%d", n) // this platform makes a new one each time
	body := fmt.Appendf(nil, `{"type":"order.paid","retry":%d,"sent_at":%q,"data":{"order":"o-1001","customer":"Ada"}}`, n, at.Format(time.RFC3339))
	hook, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		return 0, fmt.Errorf("read the secret: %w", err)
	}
	signature, err := hook.Sign(id, at, body)
	if err != nil {
		return 0, fmt.Errorf("sign: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.apis[n%len(s.apis)]+"/v1/ingest/shop", bytes.NewReader(body))
	if err != nil {
		return 0, fmt.Errorf("deliver: %w", err)
	}
	req.Header = http.Header{
		"Content-Type": {"application/json"}, "Webhook-Id": {id}, "Webhook-Timestamp": {strconv.FormatInt(at.Unix(), 10)},
		"Webhook-Signature": {signature}, "Request-Id": {fmt.Sprintf("shop-%d-%d", turn.Unix(), n)},
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, fmt.Errorf("deliver: %w", err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode > 299 {
		err = fmt.Errorf("delivery %d was answered %d: %s", n, resp.StatusCode, answer)
	}
	return resp.StatusCode, err
}

// consume is the customer at the till, and the shop's platform once more
// afterwards: a coupon that is used does not come back.
func (s *stage) consume(ctx context.Context) error {
	if _, err := s.db.Exec(ctx, `UPDATE public.coupons SET state = 'consumed' WHERE order_id = 'o-1001' AND state = 'issued'`); err != nil {
		return fmt.Errorf("use the coupon: %w", err)
	}
	status, err := s.tell(ctx, deliveries-1, time.Now().Round(time.Hour))
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("one more delivery was answered %d, want 200", status)
	}
	return err
}

func (s *stage) await(ctx context.Context, sql string, want int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		var n int
		if err := s.db.QueryRow(ctx, sql).Scan(&n); err != nil {
			return fmt.Errorf("wait for %s: %w", sql, err)
		}
		if n == want {
			return nil
		}
		<-tick.C
	}
}

func (s *stage) report(ctx context.Context, out io.Writer, statuses map[int]int) error {
	count := func(sql string) (n int) {
		if err := s.db.QueryRow(ctx, sql).Scan(&n); err != nil {
			return -1
		}
		return n
	}
	wrong := 0
	for _, r := range []struct {
		what      string
		got, want int
	}{
		{"answered 202 (new)", statuses[202], 1},
		{"answered 200 (came before)", statuses[200], deliveries - 1},
		{"tasks", count(`SELECT count(*) FROM onefold.tasks`), 1},
		{"model calls", int(s.model.Calls().Received), 1},
		{"coupons issued", count(`SELECT count(*) FROM public.coupon_moves WHERE became = 'issued'`), 1},
		{"coupons used", count(`SELECT count(*) FROM public.coupon_moves WHERE was = 'issued' AND became = 'consumed'`), 1},
		{"other moves than these three", count(`SELECT count(*) FROM public.coupon_moves`) - 3, 0},
	} {
		mark := ""
		if r.got != r.want {
			mark, wrong = fmt.Sprintf("  WRONG, want %d", r.want), wrong+1
		}
		fmt.Fprintf(out, "%-32s %6d%s\n", r.what, r.got, mark)
	}
	if wrong > 0 {
		return fmt.Errorf("%d numbers are wrong; answers by status: %v %v", wrong, slices.Sorted(maps.Keys(statuses)), statuses)
	}
	fmt.Fprintln(out, "\nOne order, one coupon.")
	return nil
}
