// Package api decides what travels over the wire: task bodies, states, scopes
// and error codes, the same in Go, JSON and SQL.
//
// It uses the standard library only, so that a program which talks to onefold
// links nothing else.
//
//	situation                                        error
//	no such task, or another tenant's                ErrNotFound
//	same key, another payload                        ErrKeyReused
//	task past its retention                          ErrExpired
//	outcome unknown (from the client's Wait)         ErrUnknown
//	API key missing, wrong, expired or revoked       ErrUnauthorized
//	API key valid, scope missing                     ErrForbidden
//	over quota                                       ErrRateLimited
//	database away, or an operator's hold             ErrUnavailable
//	anything else wrong with the request             ErrInvalid
package api
