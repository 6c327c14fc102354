package api

// UsageRow is what calls came to. The fields that usage is told apart by are
// set; the others stand for all.
type UsageRow struct {
	Day      string `json:"day,omitempty"` // UTC, as 2026-03-01
	Tenant   string `json:"tenant,omitempty"`
	Kind     string `json:"kind,omitempty"`
	Provider string `json:"provider,omitempty"`
	Model    string `json:"model,omitempty"`

	// Calls are the requests that left for a provider, those it turned away at the
	// gate included; Succeeded of them were answered well.
	Calls     int64 `json:"calls"`
	Succeeded int64 `json:"succeeded"`
	// Regenerations were made although an earlier call of the task may have been
	// carried out; Orphaned were given up while the provider may have been at work.
	Regenerations int64 `json:"regenerations"`
	Orphaned      int64 `json:"orphaned"`
	// BilledUnknown is of how many nobody knows whether they were billed.
	BilledUnknown int64 `json:"billed_unknown"`

	InputTokens     int64 `json:"input_tokens"`
	CachedTokens    int64 `json:"cached_tokens"`
	OutputTokens    int64 `json:"output_tokens"`
	ReasoningTokens int64 `json:"reasoning_tokens"`
	// Cost is an exact decimal in the currency of the prices in onefold.yaml, as
	// text; empty where no call has a price.
	Cost string `json:"cost,omitempty"`
	// Saved is what folded duplicates would have cost had they been calls.
	Saved Saved `json:"saved"`
}

// Saved is what did not happen because duplicates were folded onto their task.
type Saved struct {
	Calls        int64  `json:"calls"`
	InputTokens  int64  `json:"input_tokens"`
	OutputTokens int64  `json:"output_tokens"`
	Cost         string `json:"cost,omitempty"`
}
