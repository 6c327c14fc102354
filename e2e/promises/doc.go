// Package promises decides whether onefold has kept its promises, from what is
// there after all work is done: the rows, what callers were told, the model's
// calls and the receiver's webhooks. The tasks are of the kinds of [Config].
package promises
