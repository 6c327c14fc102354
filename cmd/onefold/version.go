package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
)

type versionCmd struct{}

// Run prints what the Go toolchain stamped into the binary.
func (c *versionCmd) Run(e *env) error {
	v := map[string]string{"version": "unknown", "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		v["version"] = info.Main.Version
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
