package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/onefold-dev/onefold/internal/boot"
)

type versionCmd struct{}

// Run prints the version given at the build, else what the Go toolchain stamped
// into the binary.
func (c *versionCmd) Run(e *env) error {
	v := map[string]string{"version": boot.Version, "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		if m := info.Main.Version; boot.Version == "dev" && m != "" && m != "(devel)" {
			v["version"] = m
		}
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision", "vcs.time", "vcs.modified":
				v[s.Key[len("vcs."):]] = s.Value
			}
		}
	}
	if e.json {
		b, err := json.Marshal(v)
		if err != nil {
			return fmt.Errorf("encode version: %w", err)
		}
		return e.print(string(b) + "\n")
	}
	line := "onefold " + v["version"]
	if r := v["revision"]; r != "" {
		line += " " + r[:min(len(r), 12)]
	}
	return e.print(fmt.Sprintf("%s %s %s\n", line, v["go"], v["platform"]))
}
