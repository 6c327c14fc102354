// Command dashboard draws the Grafana dashboard: the questions of a person on
// call stand in rows.go, this program makes the JSON of them.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
)

//go:generate go run . ../onefold.json

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "dashboard:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("name the file to write, and nothing else")
	}
	text, err := render()
	if err != nil {
		return err
	}
	return os.WriteFile(args[0], text, 0o644)
}

// render is the dashboard as Grafana reads it.
func render() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // the queries are to be read
	e.SetIndent("", "  ")
	if err := e.Encode(draw(rows())); err != nil {
		return nil, fmt.Errorf("write the dashboard: %w", err)
	}
	return b.Bytes(), nil
}
