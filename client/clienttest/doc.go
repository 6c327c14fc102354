// Package clienttest decides how onefold looks to the tests of a program that
// uses it: a server in memory, on a loopback address, with the contract of the
// real one. Keys fold, payloads are compared as the real server compares them,
// states move as its states do; one suite of tests is run against both. What a
// kind does is a function of the test's.
//
//	server := clienttest.New(map[string]clienttest.Kind{
//		"invoice.extract": {Do: clienttest.Always(clienttest.Succeed(`{"total":"1190.00"}`))},
//	})
//	defer server.Close()
//	shop := NewShop(server.Client())
//
//	situation to test                              what makes it
//	the work succeeds, or fails                    Kind.Do returns Succeed, Reject, Exhaust
//	what became of the work is not known           Kind.Do returns NotKnown; then Client.Resolve or Retry
//	another answer at the second try of a task     Sequence(first, second)
//	the work takes its time                        Kind.Do waits for a channel, and for its ctx
//	the test itself is the worker                  a Kind without Do, and Server.Settle
//	the server is away, or refuses                 Server.Refuse
//	an answer is lost after its commit             Server.LoseAnswers
//	was it done once                               Server.Calls
//
// It serves tasks: submit, bulk, read, wait, list, cancel, retry, resolve; and
// batches, whose lines become tasks at once: upload, read, list, results, cancel,
// retry. It has one tenant, and neither effects and webhooks (they are stored and
// never sent), sources, holds, quotas nor retention; what it does not serve is
// answered 404.
package clienttest
