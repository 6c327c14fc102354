// Package server decides what HTTP requests mean: it authenticates them, reads
// them strictly, makes one call, and answers.
//
// All routes stand in routes.go, each with who calls it; one file a resource
// holds the handlers. huma describes the routes (/openapi.yaml) and checks
// parameters. Bodies are read as bytes and parsed strictly elsewhere; answers
// with a result are put together as bytes, so that a result stands in them
// exactly as it is stored.
//
// Every error is an *api.Error and leaves as application/problem+json. One
// without a code is logged in full and answered as internal.
package server
