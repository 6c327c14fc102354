package main

// rows are the questions, the urgent ones first. What the database says is shown
// by one worker at a time, so `max by` over instances is right at any moment.
func rows() []row {
	return []row{
		{"Is it working, is anything unknown, what waits for a person", atAGlance()},
		{"Submits and what they folded onto", submits()},
		{"The queue", queue()},
		{"Calls and how long they took", calls()},
		{"Providers and gates", gates()},
		{"Outbox and review", outbox()},
		{"Tokens and cost", money()},
		{"Database and processes", database()},
	}
}

func atAGlance() []panel {
	return []panel{
		{
			title: "Processes up", why: "Daemons that Prometheus reaches. Fewer than you run: look at the ones that are gone.",
			unit: "short", shape: number, below: true, bad: 1,
			queries: []query{{`sum by (job) (up{job=~"onefold-.*"})`, "{{job}}"}},
		},
		{
			title: "Workers", why: "Incarnations with a lease, and those of the last hour whose lease ran out without a word: killed, paused or cut off. Playbook OnefoldLeaseLost.",
			unit: "short", shape: number,
			queries: []query{{`max by (state) (onefold_workers)`, "{{state}}"}},
		},
		{
			title: "Succeeded a second", why: "Tasks that reached a result. Zero while the queue has due tasks: nothing is worked at.",
			unit: "cps", shape: number,
			queries: []query{{`sum(rate(onefold_tasks_settled_total{state="succeeded"}[$__rate_interval]))`, "succeeded"}},
		},
		{
			title: "Calls that fail", why: "The part of attempts that did not succeed, of the worst provider.",
			unit: "percentunit", shape: number, warn: .05, bad: .25,
			queries: []query{{`max(onefold:call_failure_ratio:rate5m)`, "worst provider"}},
		},
		{
			title: "Unknown", why: "Tasks of which nobody knows whether the call happened. A person or a check decides; never retry unlooked. Playbook OnefoldUnknown.",
			unit: "short", shape: number, bad: 1,
			queries: []query{{`max(onefold_tasks_unknown)`, "tasks"}},
		},
		{
			title: "Waits for a person", why: "The review queue: `onefold review list`.",
			unit: "short", shape: number, warn: 1, bad: 50,
			queries: []query{{`sum(max by (type, state, age) (onefold_review_items)) or vector(0)`, "items"}},
		},
		{
			title: "Oldest due task", why: "How long the task that has waited longest has been due, of the worst kind.",
			unit: "s", shape: number, warn: 60, bad: 300,
			queries: []query{{`max(onefold_queue_oldest_seconds) or vector(0)`, "oldest"}},
		},
		{
			title: "Oldest effect due", why: "How long the effect that has waited longest has been due. Over five minutes it alerts. Playbook OnefoldOutboxOldest.",
			unit: "s", shape: number, warn: 60, bad: 300,
			queries: []query{{`max(onefold_outbox_oldest_seconds) or vector(0)`, "oldest"}},
		},
		{
			title: "Gates not open", why: "Providers and destinations that cool, are held or disabled. Their tasks wait; nothing is lost.",
			unit: "short", shape: number, warn: 1, bad: 3,
			queries: []query{{`count(max by (scope, name) (onefold_gate_state{state!="open"})) or vector(0)`, "gates"}},
		},
		{
			title: "Hit ratio", why: "The part of submits answered from settled tasks. Twice a day ago's for five minutes alerts, mostly before any error does. Playbook OnefoldHitRatio.",
			unit: "percentunit", shape: number,
			queries: []query{{`onefold:idempotency_hit_ratio:rate5m`, "hits"}},
		},
		{
			title: "Answers with 5xx", why: "The part of the API's answers with status 500 or above: 503 says that something is held or the database is away.",
			unit: "percentunit", shape: number, warn: .01, bad: .05,
			queries: []query{{`onefold:http_error_ratio:rate5m`, "5xx"}},
		},
		{
			title: "Age of the gauges", why: "What stands in the database is read every 10 s by one worker. Older than a minute: no worker reads it, and the numbers beside this one are old.",
			unit: "s", shape: number, warn: 60, bad: 300,
			queries: []query{{`time() - max(onefold_gauges_read_timestamp_seconds)`, "read"}},
		},
		{
			title: "Alerts that fire", why: "Each has a playbook of its name in docs/playbooks.", unit: "short", shape: list, width: 24,
			queries: []query{{`ALERTS{alertname=~"Onefold.*", alertstate="firing"}`, "{{alertname}}"}},
		},
	}
}

func submits() []panel {
	return []panel{
		{
			title: "Submits", why: "Well-formed submits, whatever they came to.", unit: "cps", shape: lines,
			queries: []query{{rate("kind, source", `onefold_submits_total{`+byKind+`}`), "{{kind}} from {{source}}"}},
		},
		{
			title: "What they came to", why: "New tasks, hits on settled ones, folds onto unfinished ones, refused keys, runs again. Folds that rise say that processing takes longer than the callers' patience. Playbook OnefoldInflightRising.",
			unit: "cps", shape: lines,
			queries: []query{
				{`sum(rate(onefold_tasks_created_total{` + byKind + `}[$__rate_interval]))`, "created"},
				{`sum(rate(onefold_idempotency_hit_total{` + byKind + `}[$__rate_interval]))`, "hit"},
				{`sum(rate(onefold_idempotency_inflight_conflict_total{` + byKind + `}[$__rate_interval]))`, "folded"},
				{`sum(rate(onefold_idempotency_mismatch_total{` + byKind + `}[$__rate_interval]))`, "key reused"},
				{`sum(rate(onefold_tasks_reopened_total{` + byKind + `}[$__rate_interval]))`, "reopened"},
			},
		},
		{
			title: "Duplicates a second", why: "Submits that made no work, by kind and source. Over three a second alerts. Playbook OnefoldDuplicates.",
			unit: "cps", shape: lines, bad: 3,
			queries: []query{{rate("kind, source", `onefold_duplicates_discarded_total{`+byKind+`}`), "{{kind}} from {{source}}"}},
		},
		{
			title: "Ratios of all submits", why: "Discards under 5 % are healthy, up to 10 % in bursts. Playbooks OnefoldDiscardRate and OnefoldHitRatio.",
			unit: "percentunit", shape: lines, warn: .05,
			queries: []query{
				{`onefold:duplicate_discard_rate:rate5m`, "discarded"},
				{`onefold:idempotency_hit_ratio:rate5m`, "hit"},
				{`onefold:inflight_conflict_ratio:rate5m`, "folded"},
				{`onefold:idempotency_mismatch_ratio:rate5m`, "key reused"},
			},
		},
		{
			title: "Refused submits", why: "Refused for what the system is like now, by code: held, over quota, or the database away.", unit: "cps", shape: lines,
			queries: []query{{rate("code", `onefold_submits_refused_total{`+byKind+`}`), "{{code}}"}},
		},
		{
			title: "Answers of the API", why: "Requests by status.", unit: "reqps", shape: lines,
			queries: []query{{rate("status", `onefold_http_request_seconds_count`), "{{status}}"}},
		},
		{
			title: "How long answers took", why: "The slow end by route; waits that callers asked for are in it.", unit: "s", shape: lines,
			queries: []query{{`histogram_quantile(0.95, ` + rate("le, route", `onefold_http_request_seconds_bucket`) + `)`, "{{route}} p95"}},
		},
		{
			title: "Held for callers who wait", why: "How long answers were held for `Prefer: wait`.", unit: "s", shape: lines,
			queries: quantiles("", `onefold_poll_wait_seconds_bucket`),
		},
		{
			title: "Duplicates a key", why: "Of keys that were repeated at all and are kept: the median, and the key repeated most but for one in a hundred.", unit: "short", shape: lines,
			queries: []query{
				{`histogram_quantile(0.5, max by (le) (onefold_key_repeats_bucket))`, "p50"},
				{`histogram_quantile(0.99, max by (le) (onefold_key_repeats_bucket))`, "p99"},
			},
		},
	}
}

func queue() []panel {
	return []panel{
		{
			title: "Unfinished tasks", why: "Due: to be run now. Scheduled: later, or tried again. Running: at a provider.", unit: "short", shape: lines,
			queries: []query{{`max by (kind, state) (onefold_queue_depth{` + byKind + `})`, "{{kind}} {{state}}"}},
		},
		{
			title: "Oldest due task", why: "Rises by a second a second while nothing of the kind is claimed.", unit: "s", shape: lines, warn: 60, bad: 300,
			queries: []query{{`max by (kind) (onefold_queue_oldest_seconds{` + byKind + `})`, "{{kind}}"}},
		},
		{
			title: "Wait in the queue", why: "From when a task was due to when a worker claimed it. Long with short calls: too few workers, or a bound that is met.", unit: "s", shape: lines,
			queries: quantiles("kind", `onefold_queue_wait_seconds_bucket{`+byKind+`}`),
		},
		{
			title: "Outcomes", why: "Tasks that reached an outcome; one that runs again counts again.", unit: "cps", shape: lines,
			queries: []query{{rate("kind, state", `onefold_tasks_settled_total{`+byKind+`}`), "{{kind}} {{state}}"}},
		},
		{
			title: "Taken from lost workers", why: "Running tasks whose worker's lease ran out, and writes refused because somebody else owned the row by then. Playbook OnefoldLeaseLost.", unit: "cps", shape: lines,
			queries: []query{
				{rate("kind", `onefold_tasks_reaped_total{`+byKind+`}`), "reaped {{kind}}"},
				{rate("what", `onefold_fenced_writes_total`), "fenced {{what}}"},
				{`sum(rate(onefold_leases_lost_total[$__rate_interval]))`, "leases lost"},
			},
		},
		{
			title: "Workers over time", why: "Incarnations with a lease, and those lost within the last hour.", unit: "short", shape: lines,
			queries: []query{{`max by (state) (onefold_workers)`, "{{state}}"}},
		},
	}
}

func calls() []panel {
	some := byKind + `, ` + byProvider
	return []panel{
		{
			title: "Attempts by outcome", why: "What came of the calls: docs/failures.md says what follows from each.", unit: "cps", shape: lines,
			queries: []query{{rate("provider, outcome", `onefold_attempts_total{`+some+`}`), "{{provider}} {{outcome}}"}},
		},
		{
			title: "Send to end of the call", why: "However it ended. Above the callers' timeouts they send again: folds rise with it.", unit: "s", shape: lines,
			queries: quantiles("provider", `onefold_call_seconds_bucket{`+some+`}`),
		},
		{
			title: "Send to first byte", why: "Or to the first token of a stream. Rises with the total: the provider is slow to begin. Alone the total: replies got longer.", unit: "s", shape: lines,
			queries: quantiles("provider", `onefold_call_first_byte_seconds_bucket{`+some+`}`),
		},
		{
			title: "Calls that fail", why: "The part of attempts that did not succeed.", unit: "percentunit", shape: lines, warn: .05, bad: .25,
			queries: []query{{`onefold:call_failure_ratio:rate5m{` + byProvider + `}`, "{{provider}}"}},
		},
		{
			title: "Perhaps billed", why: "Calls of which nobody knows whether they were billed: compare `onefold usage` with the provider's list.", unit: "cps", shape: lines,
			queries: []query{{rate("provider", `onefold_calls_billed_unknown_total{`+some+`}`), "{{provider}}"}},
		},
		{
			title: "Calls under way", why: "What the database says is running now.", unit: "short", shape: lines,
			queries: []query{{`max by (kind) (onefold_queue_depth{state="running", ` + byKind + `})`, "{{kind}}"}},
		},
	}
}

func gates() []panel {
	return []panel{
		{
			title: "State of each gate", why: "Open, or why not: `onefold providers`, `onefold destinations`.", unit: "short", shape: list,
			queries: []query{{`max by (scope, name, state, code) (onefold_gate_state) > 0`, "{{scope}} {{name}} {{state}} {{code}}"}},
		},
		{
			title: "Failures in a row", why: "Over five alerts, and closes the gate for a while. Playbook OnefoldConsecutiveFailures.", unit: "short", shape: lines, bad: 6,
			queries: []query{{`max by (scope, name) (onefold_gate_consecutive_failures)`, "{{scope}} {{name}}"}},
		},
		{
			title: "Waits behind a gate", why: "Tasks or effects behind a gate that is not open. Over a thousand alerts. Playbook OnefoldCoolingQueue.", unit: "short", shape: lines, warn: 100, bad: 1000,
			queries: []query{{`max by (scope, name) (onefold_gate_waiting)`, "{{scope}} {{name}}"}},
		},
		{
			title: "Credentials refused", why: "At the API these are callers' keys; elsewhere any one alerts. Playbook OnefoldAuthFailure.", unit: "short", shape: lines, bad: 1,
			queries: []query{{`sum by (side, name) (increase(onefold_auth_failures_total[$__rate_interval]))`, "{{side}} {{name}}"}},
		},
		{
			title: "Rotation coverage", why: "The part of a source's deliveries of a day that its newest secret verified: at 1 the old one can go. Playbook OnefoldRotationCoverage.", unit: "percentunit", shape: lines,
			queries: []query{{`min by (source) (onefold_rotation_coverage_ratio)`, "{{source}}"}},
		},
	}
}

func outbox() []panel {
	return []panel{
		{
			title: "Effects not delivered yet", why: "By destination and state: waiting, delivering, held, unknown, dead.", unit: "short", shape: lines,
			queries: []query{{`max by (destination, state) (onefold_effects_open{` + byDestination + `})`, "{{destination}} {{state}}"}},
		},
		{
			title: "Oldest effect due", why: "Over 300 s alerts. Playbook OnefoldOutboxOldest.", unit: "s", shape: lines, bad: 300,
			queries: []query{{`max by (destination) (onefold_outbox_oldest_seconds{` + byDestination + `})`, "{{destination}}"}},
		},
		{
			title: "Deliveries", why: "By what came of them.", unit: "cps", shape: lines,
			queries: []query{{rate("destination, outcome", `onefold_deliveries_total{`+byDestination+`}`), "{{destination}} {{outcome}}"}},
		},
		{
			title: "Deliveries that fail", why: "The part that was not delivered at this try.", unit: "percentunit", shape: lines, warn: .05, bad: .5,
			queries: []query{{`onefold:delivery_failure_ratio:rate5m{` + byDestination + `}`, "{{destination}}"}},
		},
		{
			title: "How long deliveries took", why: "At most 28 s: then a delivery is given up for this time.", unit: "s", shape: lines, warn: 10,
			queries: quantiles("destination", `onefold_delivery_seconds_bucket{`+byDestination+`}`),
		},
		{
			title: "Review by age", why: "What waits for a person, by how long it has waited: `onefold review list`.", unit: "short", shape: lines,
			queries: []query{{`max by (type, state, age) (onefold_review_items)`, "{{type}} {{state}} up to {{age}}"}},
		},
		{
			title: "Outcomes refused", why: "Of deliveries whose effect was another's by then.", unit: "cps", shape: lines,
			queries: []query{{rate("destination", `onefold_fenced_deliveries_total{`+byDestination+`}`), "{{destination}}"}},
		},
	}
}

func money() []panel {
	some := byKind + `, ` + byProvider
	return []panel{
		{
			title: "Tokens a second", why: "As the providers counted them.", unit: "cps", shape: lines,
			queries: []query{{rate("provider, direction", `onefold_tokens_total{`+some+`}`), "{{provider}} {{direction}}"}},
		},
		{
			title: "Cost an hour", why: "By the prices in onefold.yaml, in their currency.", unit: "none", shape: lines,
			queries: []query{{`3600 * ` + rate("kind, provider", `onefold_cost_total{`+some+`}`), "{{kind}} at {{provider}}"}},
		},
		{
			title: "Saved calls", why: "Calls that duplicates would have cost: hits on a result that is stored.", unit: "cps", shape: lines,
			queries: []query{{rate("kind", `onefold_saved_calls_total{`+byKind+`}`), "{{kind}}"}},
		},
		{
			title: "Saved tokens", why: "Tokens of those calls.", unit: "cps", shape: lines,
			queries: []query{{rate("direction", `onefold_saved_tokens_total{`+byKind+`}`), "{{direction}}"}},
		},
		{
			title: "Ratios", why: "Saved: of all calls that would have been made. Cached: of the input tokens, by the provider's own cache. Perhaps billed: of all attempts.", unit: "percentunit", shape: lines,
			queries: []query{
				{`onefold:saved_calls_ratio:rate5m`, "saved"},
				{`onefold:cached_token_ratio:rate5m{` + byProvider + `}`, "cached at {{provider}}"},
				{`onefold:billed_unknown_ratio:rate5m{` + byProvider + `}`, "perhaps billed at {{provider}}"},
			},
		},
	}
}

func database() []panel {
	return []panel{
		{
			title: "Oldest snapshot", why: "Transactions since the oldest snapshot that keeps vacuum from its work. Over a million alerts. Playbook OnefoldXmin.", unit: "short", shape: lines, bad: 1e6,
			queries: []query{{`max(onefold_postgres_oldest_xmin_transactions)`, "transactions"}},
		},
		{
			title: "Oldest transaction", why: "How long it has been open. Over an hour alerts. Playbook OnefoldXmin.", unit: "s", shape: lines, warn: 600, bad: 3600,
			queries: []query{{`max(onefold_postgres_oldest_transaction_seconds)`, "open"}},
		},
		{
			title: "Dead rows", why: "The part of a table's rows that vacuum has yet to take away: in a queue's tables they slow every claim.", unit: "percentunit", shape: lines, warn: .5,
			queries: []query{{`onefold:dead_rows_ratio`, "{{table}}"}},
		},
		{
			title: "Live rows", why: "Of each table, as Postgres counts them.", unit: "short", shape: lines,
			queries: []query{{`max by (table) (onefold_postgres_live_rows)`, "{{table}}"}},
		},
		{
			title: "Reading the gauges", why: "How long one reading of the database took.", unit: "s", shape: lines, warn: 1,
			queries: []query{{`max(onefold_gauges_read_seconds)`, "reading"}},
		},
		{
			title: "Memory of the processes", why: "Resident memory by process.", unit: "bytes", shape: lines,
			queries: []query{{`process_resident_memory_bytes{job=~"onefold-.*"}`, "{{job}} {{instance}}"}},
		},
		{
			title: "CPU of the processes", why: "Seconds of CPU a second: 1 is one core.", unit: "short", shape: lines,
			queries: []query{{`rate(process_cpu_seconds_total{job=~"onefold-.*"}[$__rate_interval])`, "{{job}} {{instance}}"}},
		},
		{
			title: "Open files", why: "Of how many a process may have.", unit: "percentunit", shape: lines, warn: .5, bad: .8,
			queries: []query{{`process_open_fds{job=~"onefold-.*"} / process_max_fds{job=~"onefold-.*"}`, "{{job}} {{instance}}"}},
		},
	}
}
