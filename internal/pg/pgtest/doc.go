// Package pgtest hands each test a Postgres database of its own, migrated and empty.
//
// The databases are copies of one template, made once a run, on one cluster.
// `make test` starts that cluster for all test binaries and names it in
// ONEFOLD_TEST_DATABASE_URL; without it each test binary starts one for itself,
// which ends with the binary. A test that stops or kills Postgres takes a private
// one from Cluster.
package pgtest
