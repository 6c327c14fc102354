// Package config decides what onefold.yaml means.
//
// [Load] reads the file strictly and reports every problem at once, each with file, line, column and what to do. What
// it returns is checked: templates are compiled and rendered with each kind's sample, names refer to things that exist,
// secrets can be read, and retention is long enough for every retry that the same file allows.
//
// A [Kind] also has a canonical body and its hash. The body is stored by hash in the database, and [KindFromBody]
// rebuilds from it the kind a task was submitted under, so that a change of the file never changes a task already
// accepted.
package config
