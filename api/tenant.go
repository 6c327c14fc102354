package api

// Quota names one of a tenant's quotas.
type Quota string

// The quotas of a tenant.
const (
	QuotaRequests Quota = "requests_per_second" // new tasks a second
	QuotaQueued   Quota = "queued"              // tasks that wait
)
