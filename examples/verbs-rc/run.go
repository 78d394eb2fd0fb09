package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"

	"github.com/goroce/roce"
	"github.com/goroce/roce/examples/internal/nic"
)

// run is main of the C program.
func run(ctx context.Context, args []string, out io.Writer) error {
	c, err := parse(args)
	if err != nil {
		return err
	}
	c.print(out)
	res := &resources{config: c, out: out}
	err = errors.Join(res.exchange(ctx), res.destroy())
	fmt.Fprintf(out, "\ntest result is %d\n", map[bool]int{false: 0, true: 1}[err != nil])
	return err
}

// exchange creates the resources, connects the queue pair and moves the messages.
func (res *resources) exchange(ctx context.Context) error {
	if err := res.resourcesCreate(ctx); err != nil {
		return fmt.Errorf("failed to create resources: %w", err)
	}
	if err := res.connectQP(ctx); err != nil {
		return fmt.Errorf("failed to connect QPs: %w", err)
	}
	if res.serverName == "" {
		return res.server(ctx)
	}
	return res.client(ctx)
}

// server sends one message. What the client then does to its memory it does not notice.
func (res *resources) server(ctx context.Context) error {
	if err := res.transfer(ctx, roce.Send); err != nil {
		return err
	}
	if err := res.setBuf(readMsg); err != nil { // for the client to read
		return err
	}
	if err := res.sync('R'); err != nil {
		return err
	}
	if err := res.sync('W'); err != nil { // the client is done
		return err
	}
	fmt.Fprintf(res.out, "Contents of server buffer: '%s'\n", res.buf())
	return nil
}

// client receives the message, and reads and writes the server's memory.
func (res *resources) client(ctx context.Context) error {
	if err := res.pollCompletion(ctx); err != nil {
		return err
	}
	fmt.Fprintf(res.out, "Message is: '%s'\n", res.buf())
	if err := res.sync('R'); err != nil {
		return err
	}
	if err := res.transfer(ctx, roce.Read); err != nil {
		return err
	}
	fmt.Fprintf(res.out, "Contents of server's buffer: '%s'\n", res.buf())
	if err := res.setBuf(wrMsg); err != nil {
		return err
	}
	fmt.Fprintf(res.out, "Now replacing it with: '%s'\n", res.buf())
	if err := res.transfer(ctx, roce.Write); err != nil {
		return err
	}
	return res.sync('W')
}

// transfer posts a work request and waits for its completion.
func (res *resources) transfer(ctx context.Context, opcode roce.Opcode) error {
	if err := res.postSend(opcode); err != nil {
		return err
	}
	return res.pollCompletion(ctx)
}

// destroy destroys what was made (resources_destroy). Closing the device closes the completion
// queue, too.
func (res *resources) destroy() (err error) {
	if res.qp != nil {
		err = res.qp.Close()
	}
	if res.mr != nil {
		err = errors.Join(err, res.mr.Close())
	}
	if res.nic != nil {
		err = errors.Join(err, res.nic.Close())
	}
	if res.sock != nil {
		err = errors.Join(err, res.sock.Close())
	}
	return err
}

// parse reads the command line.
func parse(args []string) (c config, err error) {
	f := flag.NewFlagSet("verbs-rc", flag.ContinueOnError)
	for _, name := range []string{"p", "port"} {
		f.IntVar(&c.tcpPort, name, 19875, "listen on or connect to TCP `port`")
	}
	for _, name := range []string{"d", "ib-dev"} {
		f.StringVar(&c.devName, name, "", nic.Usage)
	}
	for _, name := range []string{"i", "ib-port"} {
		f.IntVar(&c.ibPort, name, 1, "`port` of the device")
	}
	for _, name := range []string{"g", "gid-idx"} {
		f.IntVar(&c.gidIdx, name, 0, "`index` of the GID to send from; the C program needs -g, because RoCE cannot do without GIDs")
	}
	if err := f.Parse(args); err != nil {
		return c, err
	}
	if f.NArg() > 1 {
		return c, fmt.Errorf("%q: one server name is enough", f.Args())
	}
	c.serverName = f.Arg(0)
	return c, nil
}

// print prints the parameters (print_config).
func (c *config) print(out io.Writer) {
	const line = " ------------------------------------------------"
	fmt.Fprintf(out, "%s\n Device name: %q\n IB port: %d\n", line, cmp.Or(c.devName, "(null)"), c.ibPort)
	if c.serverName != "" {
		fmt.Fprintf(out, " IP: %s\n", c.serverName)
	}
	fmt.Fprintf(out, " TCP port: %d\n GID index: %d\n%s\n\n", c.tcpPort, c.gidIdx, line)
}
