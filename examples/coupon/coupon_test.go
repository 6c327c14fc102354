package main

import (
	"os/exec"
	"testing"
)

// The example comes out right on the programs as they are now.
func TestOneCoupon(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	build := exec.Command("go", "build", "-o", bin, "github.com/onefold-dev/onefold/cmd/api", "github.com/onefold-dev/onefold/cmd/worker")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	if err := run(t.Context(), bin, t.Output()); err != nil {
		t.Fatal(err)
	}
}
