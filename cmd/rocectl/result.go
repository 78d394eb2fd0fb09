package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// results prints what a tool has found out at its end: as text, or with --json
// as one object a line, and then nothing else on standard output.
type results struct {
	asJSON bool
	out    io.Writer
}

// addJSONFlag gives a command the choice.
func addJSONFlag(c *cobra.Command) *results {
	r := new(results)
	c.Flags().BoolVar(&r.asJSON, "json", false, "print the result as a JSON object, everything else to standard error")
	return r
}

// begin is called when the command runs, before anything is printed.
func (r *results) begin(c *cobra.Command) {
	r.out = c.OutOrStdout()
	if r.asJSON {
		c.SetOut(c.ErrOrStderr())
	}
}

// print prints the result of one end. text says what stands for it without
// --json; empty: nothing.
func (r *results) print(role, text string, result any) error {
	if r.asJSON {
		return json.NewEncoder(r.out).Encode(struct {
			Role   string `json:"role"`
			Result any    `json:"result"`
		}{role, result})
	}
	if text != "" {
		fmt.Fprintln(r.out, text)
	}
	return nil
}
