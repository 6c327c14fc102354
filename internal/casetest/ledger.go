package casetest

import (
	"slices"
	"strings"
	"testing"
)

// Level says how much of the system a test puts around a case.
type Level int

const (
	// Part judges a case by one package alone.
	Part Level = iota + 1
	// Whole judges it from outside, through the API of running processes.
	Whole
)

// A Claim says that a test takes some cases.
type Claim struct {
	Test  string // folder and function, "internal/canon.TestSubmitCases"
	Level Level
	Cases []string
}

// Built lists the themes that are built so far, and the level at which each of
// their cases must be claimed. Raise a theme to Whole with its tests.
var Built = map[string]Level{
	"key_normalisation": Whole,
	"idempotency_scope": Whole,
	"idempotency_race":  Whole,
	"fingerprint":       Whole,
	"replay":            Whole,
	"storage":           Whole,
	"lifecycle":         Whole,
	"postgres_fault":    Whole,
	"webhook_in":        Whole,
	"log_leak":          Whole,
	"batch":             Whole,
	"upstream_status":   Whole,
	"finish_reason":     Whole,
	"sse":               Whole,
	"retry_after":       Whole,
	"ttl":               Whole,
	"transport":         Part,
	"webhook_out":       Part,
}

// Claims is the ledger: every test that takes cases, and which.
var Claims = []Claim{
	{
		Test:  "internal/canon.TestSubmitCases",
		Level: Part,
		Cases: slices.Concat(
			ids("C001 C002 C004 C005 C006 C008 C009 C010 C011 C012 C013 C014 C015 C016 C017"), // key_normalisation
			ids("C018"),      // idempotency_scope
			ids("C021 C022"), // replay
			ids("C031 C032 C033 C034 C036 C037 C038 C039 C041 C042 C043 C044 C045 C046 C048 C049 C051"), // fingerprint
			ids("C052 C053 C054 C055 C056 C057 C058"),
			ids("C063 C064 C071 C072 C074 C075 C079"), // storage
		),
	},
	{
		// Without a worker: C022 counts wake-ups in place of calls upstream.
		Test:  "internal/server.TestCases",
		Level: Whole,
		Cases: slices.Concat(
			ids("C001 C002 C004 C005 C006 C008 C009 C010 C011 C012 C013 C014 C015 C016 C017"), // key_normalisation
			ids("C018"),           // idempotency_scope
			ids("C020 C021 C022"), // replay
			ids("C031 C032 C033 C034 C036 C037 C038 C039 C041 C042 C043 C044 C045 C046 C048 C049 C051"), // fingerprint
			ids("C052 C053 C054 C055 C056 C057 C058 C059 C060"),
			ids("C063 C064 C071 C072 C074 C075 C077 C079"), // storage
		),
	},
	{
		Test:  "internal/server.TestBatchCases",
		Level: Whole,
		Cases: ids("C235 C236 C237 C238 C239 C240 C241 C242 C243 C244 C245 C247 C248 C249 C250 C251"),
	},
	{Test: "e2e.TestBatchLineFails", Level: Whole, Cases: ids("C252")},
	{Test: "e2e.TestBatchesShareIDs", Level: Whole, Cases: ids("C253")},
	{Test: "e2e.TestBatchWorkerKilled", Level: Whole, Cases: ids("C254")},
	{Test: "e2e.TestBatchReplyLost", Level: Whole, Cases: ids("C255")},
	{Test: "internal/server.TestTTLCases", Level: Whole, Cases: ids("C028 C029 C030")},
	{Test: "internal/server.TestOneKeyTwoResources", Level: Whole, Cases: ids("C019")},
	{Test: "e2e.TestRaceCases", Level: Whole, Cases: ids("C024 C025 C027")},
	{Test: "e2e.TestThroughPooler", Level: Whole, Cases: ids("C274")},
	{Test: "e2e.TestDeadKey", Level: Whole, Cases: ids("C023")},
	{Test: "e2e/seeing.TestLogLeakCases", Level: Whole, Cases: ids("C277 C278 C279 C280")},
	{Test: "e2e.TestReplyLost", Level: Whole, Cases: ids("C022")},
	{Test: "e2e.TestUpstreamCases", Level: Whole, Cases: ids("C061 C062 C065 C066 C068 C069 C076 C078")}, // storage
	{Test: "e2e.TestTransportCases", Level: Whole, Cases: ids("C167 C168 C169 C171 C172 C173")},          // C170 needs a name server of the process's own
	{Test: "e2e.TestRescueBelowTimeout", Level: Whole, Cases: ids("C261")},
	{
		Test:  "e2e.TestProviderCases",
		Level: Whole,
		Cases: slices.Concat(
			ids("C080 C081 C083 C084 C085 C086 C087 C088 C089 C090 C091 C092 C093 C094 C095 C096 C097 C098 C099 C100 C101 C102 C103 C104 C105 C106 C107 C108 C109"), // upstream_status
			ids("C110 C111 C112 C113 C115"), // finish_reason
			ids("C116 C117 C118 C119 C120 C121 C122 C123 C124 C125 C126 C127 C128 C129 C130 C131 C132 C134 C135"),                                              // retry_after
			ids("C136 C137 C138 C140 C141 C142 C143 C144 C145 C146 C147 C148 C149 C150 C151 C152 C153 C154 C155 C156 C157 C158 C159 C160 C161 C163 C164 C166"), // sse
		),
	},
	{
		// A worker with its real client against scripted servers: state, calls, ledger.
		Test:  "internal/worker.TestUpstreamCases",
		Level: Part,
		Cases: slices.Concat(
			ids("C080 C081 C083 C084 C085 C086 C087 C088 C089 C090 C091 C092 C093 C094 C095 C096 C097 C098 C099 C100 C101 C102 C103 C104 C105 C106 C107 C108 C109"), // upstream_status
			ids("C110 C111 C112 C113 C115"), // finish_reason
			ids("C136 C137 C138 C140 C141 C142 C143 C144 C145 C146 C147 C148 C149 C150 C151 C152 C153 C154 C155 C156 C157 C158 C159 C160 C161 C163 C164 C166"), // sse
		),
	},
	{Test: "internal/worker.TestRetryAfterCases", Level: Part, Cases: ids("C116 C117 C118 C119 C120 C121 C122 C123 C124 C125 C126 C127 C128 C129 C130 C131 C132 C134 C135")},
	{Test: "internal/worker.TestTransportCases", Level: Part, Cases: ids("C167 C168 C169 C170 C171 C172 C173")},
	{
		Test:  "e2e/faults.TestLifecycleCases",
		Level: Whole,
		Cases: ids("C256 C257 C258 C259 C260 C262 C263 C264 C265"),
	},
	{Test: "e2e/faults.TestPostgresCases", Level: Whole, Cases: ids("C266 C267 C268 C269 C270 C271 C272 C273 C275 C276")},
	{Test: "internal/server.TestWebhookInCases", Level: Whole, Cases: ids("C174 C175 C176 C177 C178 C179 C180 C181 C182 C183 C184 C185 C186 C187 C188 C189 C190 C191 C192 C193 C194 C196 C197 C198 C199 C200")},
	{Test: "internal/outbox.TestWebhookOutCases", Level: Part, Cases: ids("C201 C202 C203 C204 C205 C206 C207 C208 C209 C210 C211 C212 C213 C214 C216 C217 C218 C219 C220 C221 C222 C223 C224 C225 C226 C228 C229 C230 C231 C232 C233 C234")},
}

// Later lists cases of built themes that no test can take yet, with what they
// wait for. An entry goes as soon as its case is claimed.
var Later = map[string]string{}

func ids(list string) []string { return strings.Fields(list) }

// Claimed returns the cases the ledger gives to a test, so that the test takes
// exactly those. It fails when there are none.
func Claimed(tb testing.TB, test string) []Case {
	tb.Helper()
	var cases []Case
	for _, claim := range Claims {
		if claim.Test == test {
			for _, id := range claim.Cases {
				cases = append(cases, Get(tb, id))
			}
		}
	}
	if len(cases) == 0 {
		tb.Fatalf("the ledger claims no cases for %s", test)
	}
	return cases
}
