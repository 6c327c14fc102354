// Package proc decides how tests run onefold's programs as real processes: how
// they are built, started, signalled, listened to and cleaned up.
//
// A package that uses it calls [Main] from TestMain and [New] in each test:
//
//	func TestMain(m *testing.M) { proc.Main(m) }
//
//	w := proc.New(t, nil)                        // database, model server, receiver, key, onefold.yaml
//	api := w.API(t)                              // ready when it returns
//	worker := w.Worker(t, "--lease", "3s")
//	task, err := w.Client(t, api).Do(ctx, "key", api.Submit{Kind: "work", Input: input})
//	worker.Kill(t); worker.Restart(t)
//
// Nothing a test starts outlives it: a process ends with its test, and on Linux
// also with a test binary that is killed.
package proc
