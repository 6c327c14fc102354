// Package client decides how a program talks to a onefold server: it submits
// tasks, polls for their results, and repeats what may be repeated.
//
// The key is what makes a submit safe to repeat. Make it once from what names
// the intent, before the first try, and use it on every try; Key builds one.
// The Client repeats by itself only what can do no harm: reads, cancels, and
// submits under their own key with the same bytes. It links the standard
// library and package api, nothing else.
//
//	situation                                            error
//	key used before with another payload                 api.ErrKeyReused, Mismatch names the fields
//	key empty or malformed, bad input, unknown kind      api.ErrInvalid
//	API key missing, wrong, expired or revoked           api.ErrUnauthorized
//	API key lacks the scope                              api.ErrForbidden
//	no such task, or another tenant's                    api.ErrNotFound
//	task or result past its retention                    api.ErrExpired
//	acted on a state or epoch that is no longer so       api.ErrConflict
//	over quota, still so after all retries               api.ErrRateLimited
//	server away, held or silent after all retries        api.ErrUnavailable
//	something else answered (a proxy, another server)    api.ErrUnavailable
//	the caller's ctx ended                               api.ErrUnavailable, and the ctx's own error
//	Wait, Do, Result: the task failed or was cancelled   api.ErrFailed, Task set
//	Wait, Do, Result: what became of it is not known     api.ErrUnknown, Task set
//	Get with an ETag: nothing changed                    ErrNotModified
//
// All but ErrNotModified hold an *api.Error, found with errors.As: Code for
// programs, Message for people, Fix for what to do next, RequestID for asking.
//
// Each retry is made by the Client, announced to Opts.OnRetry, and none by
// net/http, which would send a POST with an Idempotency-Key again unseen when a
// kept connection breaks. That is harmless to the task, but would count a
// duplicate that no caller made.
package client
