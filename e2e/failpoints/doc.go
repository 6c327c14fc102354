// Package failpoints decides nothing: its tests, which need the build tag
// failpoints, bring real processes to every point of package failpoint, kill,
// fail and stall them there, and then check the promises.
package failpoints
