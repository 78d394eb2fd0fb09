package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
)

// results prints the results of a tool: as text, or with --json as one object a line. With --json
// nothing else goes to standard output.
type results struct {
	asJSON bool
	out    io.Writer
	file   string // the objects are also appended to this file; "": no file
}

// addJSONFlag adds --json to a command.
func addJSONFlag(c *cobra.Command) *results {
	r := new(results)
	c.Flags().BoolVar(&r.asJSON, "json", false, "print the result as a JSON object, everything else to standard error")
	return r
}

// begin prepares the output. The command calls it before it prints anything.
func (r *results) begin(c *cobra.Command) {
	r.out = c.OutOrStdout()
	if r.asJSON {
		c.SetOut(c.ErrOrStderr())
	}
}

// print saves the result of one end and prints it: with --json as an object, without --json as text, unless text is "".
func (r *results) print(role, text string, result any) error {
	object, err := json.Marshal(struct {
		Role   string `json:"role"`
		Result any    `json:"result"`
	}{role, result})
	if err != nil {
		return err
	}
	if err := r.save(object); err != nil {
		return err
	}
	if r.asJSON {
		_, err := fmt.Fprintf(r.out, "%s\n", object)
		return err
	}
	if text != "" {
		fmt.Fprintln(r.out, text)
	}
	return nil
}

// save appends an object to the file.
func (r *results) save(object []byte) error {
	if r.file == "" {
		return nil
	}
	f, err := os.OpenFile(r.file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(append(object, '\n'))
	return errors.Join(err, f.Close())
}
